/** Jobs of all kinds as a time line and as a list. */

import { getReport } from "./api.js";
import { dataTable, stateBadge, stateKind } from "./data_table.js";
import { choice, command, empty, facts, field, h, heading, panel, picture } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { link } from "./router.js";
import { drawTimeline } from "./timeline.js";

const KINDS = {
    "ingest-jobs": "Ingest",
    "bulk-import-jobs": "Bulk import",
    "bulk-export-jobs": "Bulk export",
    "compaction-jobs": "Compaction",
    "deletion-jobs": "Deletion",
    "adapter-jobs": "Adapter",
};
const JOBS_PER_KIND_MAX = 200;
const JOBS_LISTED_MAX = 300;
const PERIODS = {
    "": "All times",
    600: "Last 10 minutes",
    3600: "Last hour",
    86400: "Last day",
    604800: "Last week",
};
const COLUMNS = [
    { name: "state", title: "State", value: ({ state }) => stateBadge(state) },
    { name: "kind", title: "Kind" },
    { name: "table", title: "Table", value: ({ table }) => h("a", { href: link(["tables", table]) }, table) },
    { name: "start", title: "Started", kind: "time", value: ({ startMs }) => startMs },
    { name: "seconds", title: "Took", kind: "seconds" },
    {
        name: "rows",
        title: "Rows",
        kind: "count",
        value: ({ rows_written: written, rows_read: read }) => written ?? read,
    },
    { name: "runs", title: "Runs", kind: "count", minor: true },
    { name: "id", title: "Job", kind: "id", minor: true },
    { name: "reason", title: "Reason", kind: "reason" },
];
const QUERY_COLUMNS = [
    { name: "state", title: "State", value: ({ state }) => stateBadge(state) },
    { name: "table", title: "Table" },
    { name: "rows", title: "Rows", kind: "count" },
    { name: "updated", title: "Updated", kind: "time" },
    { name: "query", title: "Query", kind: "id", minor: true },
    { name: "reason", title: "Reason", kind: "reason" },
];

export async function showJobs({ query, signal, redraw }) {
    const table = query.get("table") ?? "";
    const kind = KINDS[query.get("kind")] ? query.get("kind") : "";
    const period = PERIODS[query.get("period")] ? query.get("period") : "";
    const [everything, queries] = await Promise.all([
        readJobs(signal),
        getReport("queries", { limit: JOBS_PER_KIND_MAX }, signal),
    ]);
    const nowMs = Date.now();
    const jobs = everything.filter(
        (each) =>
            (!table || each.table === table) &&
            (!kind || each.report === kind) &&
            (!period || (each.endMs ?? nowMs) > nowMs - 1000 * Number(period)),
    );
    const change = (values) => {
        location.hash = link(["jobs"], { table, kind, period, ...values });
    };
    const tables = [...new Set(everything.map((each) => each.table))].sort();
    const filters = h(
        "div",
        { class: "fields" },
        field(
            "Table",
            choice([["", "All tables"], ...tables.map((name) => [name, name])], table, (value) =>
                change({ table: value }),
            ),
        ),
        field(
            "Kind",
            choice([["", "All kinds"], ...Object.entries(KINDS)], kind, (value) => change({ kind: value })),
        ),
        field(
            "Time",
            choice(
                Object.entries(PERIODS).sort(([a], [b]) => a - b),
                period,
                (value) => change({ period: value }),
            ),
        ),
    );
    const refresh = h("button", { type: "button", onclick: redraw }, "Refresh");
    const head = heading("Jobs", null, refresh);
    const queryPanel = queries.rows.length
        ? panel("Queries of the queue", dataTable("Queries", QUERY_COLUMNS, queries.rows))
        : "";
    if (!everything.length) return [head, noJobs(), queryPanel];
    return [
        head,
        filters,
        facts(countStates(jobs)),
        ...(jobs.length
            ? showFound(jobs, nowMs, signal)
            : [empty("No job matches", h("p", {}, "Choose another table, kind or time."))]),
        queryPanel,
    ];
}

function showFound(jobs, nowMs, signal) {
    const started = jobs.filter((each) => each.startMs !== null);
    const caption = "✓ done, ✕ failed, ▸ running. The list below has the same jobs.";
    const omitted = jobs.length - JOBS_LISTED_MAX;
    return [
        started.length ? picture((width) => drawTimeline(started, width, nowMs), caption, signal) : "",
        dataTable("Jobs", COLUMNS, jobs.slice(0, JOBS_LISTED_MAX)),
        omitted > 0 ? h("p", { class: "about" }, `${plural(omitted, "older job")} not listed`) : "",
    ];
}

/** Returns the latest jobs of all kinds, newest first. */
async function readJobs(signal) {
    const lists = await Promise.all(
        Object.entries(KINDS).map(async ([report, kind]) => {
            const { rows } = await getReport(report, { limit: JOBS_PER_KIND_MAX }, signal);
            return rows.map((row) => describeJob(row, report, kind));
        }),
    );
    return lists.flat().sort((a, b) => (b.startMs ?? 0) - (a.startMs ?? 0));
}

function describeJob(row, report, kind) {
    const startMs = readTime(row.started ?? row.created);
    const isRunning = stateKind(row.state) === "busy";
    const endMs = startMs === null || isRunning ? null : startMs + 1000 * (row.seconds ?? 0);
    return { ...row, id: row.job, report, kind, startMs, endMs };
}

function readTime(text) {
    return text ? Date.parse(text) : null;
}

function countStates(jobs) {
    const number = (state) => jobs.filter((each) => stateKind(each.state) === state).length;
    const busy = jobs
        .filter((each) => each.endMs !== null)
        .reduce((sum, each) => sum + (each.seconds ?? 0), 0);
    return [
        ["Jobs", count(jobs.length)],
        ["Running", count(number("busy"))],
        ["Failed", count(number("bad"))],
        ["Time worked", duration(busy)],
    ];
}

function noJobs() {
    return empty(
        "No job has run yet",
        h(
            "p",
            {},
            "Jobs appear here when files are ingested, and when background work compacts, deletes or exports.",
        ),
        command("sleeper ingest TABLE FILE\nsleeper run"),
    );
}
