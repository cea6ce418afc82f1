/** Queues, dead letters with their reasons, export queues and tasks. */

import { getReport } from "./api.js";
import { dataTable, stateBadge } from "./data_table.js";
import { command, empty, facts, h, heading, panel } from "./dom.js";
import { cell, count, indentJson, time } from "./format.js";
import { link } from "./router.js";

const LETTERS_MAX = 100;
const TASKS_MAX = 50;
const QUEUE_COLUMNS = [
    { name: "queue", title: "Queue" },
    { name: "visible", title: "Waiting", kind: "count" },
    { name: "in_flight", title: "In flight", kind: "count" },
    { name: "delayed", title: "Delayed", kind: "count", minor: true },
    { name: "dead", title: "Dead letters", kind: "count" },
];
const TASK_COLUMNS = [
    { name: "state", title: "State", value: ({ state }) => stateBadge(state) },
    { name: "kind", title: "Kind" },
    { name: "started", title: "Started", kind: "time" },
    { name: "seconds", title: "Ran", kind: "seconds" },
    { name: "jobs", title: "Jobs", kind: "count" },
    { name: "rows_written", title: "Rows written", kind: "count", minor: true },
    { name: "task", title: "Task", kind: "id", minor: true },
    { name: "reason", title: "Reason", kind: "reason" },
];

export async function showQueues({ signal, redraw }) {
    const read = (report, limit) => getReport(report, { limit }, signal);
    const [queues, letters, exports_, tasks] = await Promise.all([
        read("queues"),
        read("dead-letters", LETTERS_MAX),
        read("export-queues", LETTERS_MAX),
        read("tasks", TASKS_MAX),
    ]);
    const total = (name) => queues.rows.reduce((sum, row) => sum + Number(row[name] ?? 0), 0);
    return [
        heading("Queues", null, h("button", { type: "button", onclick: redraw }, "Refresh")),
        facts([
            ["Waiting", count(total("visible"))],
            ["In flight", count(total("in_flight"))],
            ["Dead letters", count(total("dead"))],
        ]),
        dataTable("Queues", QUEUE_COLUMNS, queues.rows),
        lettersPanel(letters.rows),
        exports_.rows.length
            ? panel("Export queues", dataTable("Export queues", exportColumns(exports_.rows), exports_.rows))
            : "",
        tasksPanel(tasks.rows),
    ];
}

function lettersPanel(letters) {
    if (!letters.length) {
        return panel(
            "Dead letters",
            empty(
                "No dead letters",
                h("p", {}, "A message that fails repeatedly is kept here, with its reason."),
            ),
        );
    }
    return panel(
        "Dead letters",
        h(
            "p",
            { class: "about" },
            "Messages that failed repeatedly. Repair the cause, then return them to their queue:",
        ),
        command(`sleeper dead-letters redrive ${letters[0].queue}`),
        h("ul", { class: "letters" }, ...letters.map(showLetter)),
    );
}

function showLetter(letter) {
    const summary = h(
        "summary",
        {},
        h("span", { class: "tag" }, letter.queue),
        h("span", { class: "reason" }, letter.reason ?? "no reason is recorded"),
        h("span", { class: "dim" }, `died ${time(letter.died)}, received ${count(letter.receives)}×`),
    );
    return h(
        "li",
        {},
        h(
            "details",
            {},
            summary,
            h("p", { class: "dim" }, `Message ${letter.message}, sent ${time(letter.sent)}`),
            h(
                "pre",
                { class: "body", tabindex: "0", "aria-label": "Body of the message" },
                pretty(letter.body),
            ),
        ),
    );
}

function pretty(body) {
    try {
        return indentJson(body);
    } catch {
        return cell(body);
    }
}

function exportColumns(rows) {
    const names = Object.keys(rows[0]).filter((name) => rows.some((row) => row[name] !== null));
    return names.map((name) => ({
        name,
        title: name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "),
        kind: typeof rows[0][name] === "number" ? "count" : "text",
        value:
            name === "table"
                ? ({ table }) => h("a", { href: link(["tables", table, "followers"]) }, table)
                : undefined,
    }));
}

function tasksPanel(tasks) {
    if (!tasks.length) {
        return panel(
            "Tasks",
            empty(
                "No task has run yet",
                h("p", {}, "A task processes the messages of the queues. Start one:"),
                command("sleeper run"),
            ),
        );
    }
    return panel("Tasks", dataTable("Tasks", TASK_COLUMNS, tasks));
}
