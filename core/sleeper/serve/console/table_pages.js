/** Pages of a table: files, history, followers and holds. */

import { getJson } from "./api.js";
import { dataTable, pager } from "./data_table.js";
import { command, empty, h, panel } from "./dom.js";
import { cell, count, plural } from "./format.js";
import { link } from "./router.js";
import { shellName } from "./schema.js";

const FILES_PER_PAGE = 50;
const TRANSACTIONS_PER_PAGE = 500;
const FILE_COLUMNS = [
    {
        name: "file",
        title: "File",
        value: ({ file }) => h("span", { class: "path", title: file }, file.split("/").pop()),
    },
    { name: "rows", title: "Rows", kind: "count" },
    { name: "bytes", title: "Size", kind: "bytes" },
    {
        name: "smallest_key",
        title: "Smallest key",
        kind: "code",
        value: (file) => keyText(file.smallest_key),
        minor: true,
    },
    {
        name: "largest_key",
        title: "Largest key",
        kind: "code",
        value: (file) => keyText(file.largest_key),
        minor: true,
    },
    {
        name: "partitions",
        title: "Partitions",
        kind: "code",
        value: ({ partitions }) => listText(partitions),
        minor: true,
    },
    { name: "smallest_number", title: "Transactions", value: transactionsText, minor: true },
];
const HISTORY_COLUMNS = [
    { name: "number", title: "Version", kind: "count" },
    { name: "time", title: "Time", kind: "time" },
    { name: "operation", title: "Operation" },
    { name: "files", title: "Files", kind: "count", minor: true },
    { name: "rows", title: "Rows", kind: "count" },
    { name: "bytes", title: "Size", kind: "bytes", minor: true },
    { name: "job", title: "Job", kind: "id", minor: true },
];

export async function showFiles({ table, query, signal }) {
    const page = Math.max(1, Number(query.get("page")) || 1);
    const offset = (page - 1) * FILES_PER_PAGE;
    const { total, files } = await getJson(
        ["tables", table.name, "files"],
        { offset, limit: FILES_PER_PAGE },
        signal,
    );
    if (!total) {
        return empty(
            "This table has no files yet",
            h("p", {}, "A file appears here when an ingest is committed."),
            command(`sleeper ingest ${shellName(table.name)} rows.csv`),
        );
    }
    const place = (number) => link(["tables", table.name, "files"], { page: number });
    return [
        h("p", { class: "about" }, `${plural(total, "file")}, oldest first`),
        dataTable(`Files of ${table.name}`, FILE_COLUMNS, files),
        pager("files", page, Math.max(1, Math.ceil(Number(total) / FILES_PER_PAGE)), place),
    ];
}

export async function showHistory({ table, query, signal }) {
    const limit = Number(query.get("limit")) || TRANSACTIONS_PER_PAGE;
    const all = query.get("all") === "true" ? true : null;
    const place = (values) => link(["tables", table.name, "history"], values);
    const { recorded, hidden, transactions } = await getJson(
        ["tables", table.name, "history"],
        { limit, all },
        signal,
    );
    const older = place({ limit: limit + TRANSACTIONS_PER_PAGE, all });
    const about = Number(hidden) ? `; ${count(hidden)} of upkeep hidden` : "";
    return [
        h(
            "div",
            { class: "bar" },
            h(
                "p",
                { class: "about" },
                `${plural(recorded, "recorded transaction")}, newest first${about}`,
            ),
            Number(hidden) || all
                ? h(
                      "a",
                      { class: "button", href: place({ limit, all: all ? null : true }) },
                      all ? "Hide upkeep" : "Show all",
                  )
                : "",
        ),
        transactions.length
            ? dataTable(`History of ${table.name}`, HISTORY_COLUMNS, transactions)
            : empty(
                  "No change is recorded any more",
                  h("p", {}, "The transactions that are kept are compactions, splits and the like."),
              ),
        transactions.length < Number(recorded)
            ? h("a", { class: "button", href: older }, "Show older transactions")
            : "",
    ];
}

export async function showFollowers({ table, signal }) {
    const { version, followers, holds } = await getJson(["tables", table.name, "followers"], {}, signal);
    return [followersPanel(version, followers), holdsPanel(holds)];
}

function followersPanel(version, followers) {
    if (!followers.length) {
        return panel(
            "Followers",
            empty(
                "Nothing follows this table",
                h(
                    "p",
                    {},
                    "A follower reads the table's changes and keeps its position. Export queues and adjunct stores are followers.",
                ),
            ),
        );
    }
    const columns = [
        { name: "follower", title: "Follower" },
        { name: "position", title: "Position", kind: "count" },
        { name: "lag", title: "Lag", value: (follower) => lagBar(follower, version) },
        { name: "lost", title: "Lost", kind: "count", minor: true },
    ];
    return panel(
        "Followers",
        h(
            "p",
            { class: "about" },
            `The table is at version ${count(version)}. Lag counts transactions that change rows.`,
        ),
        dataTable("Followers", columns, followers),
    );
}

function lagBar({ start, lag }, version) {
    const span = Math.max(1, Number(version) - Number(start));
    const share = `${Math.min(100, (100 * Number(lag)) / span)}%`;
    const text = Number(lag) === 0 ? "up to date" : `${count(lag)} behind`;
    return h(
        "span",
        { class: "meter-cell" },
        h("span", { class: "meter", vars: { "--share": share }, "aria-hidden": "true" }),
        text,
    );
}

function holdsPanel(holds) {
    if (!holds.length) return panel("Holds", h("p", { class: "dim" }, "No version is held."));
    const columns = [
        { name: "hold", title: "Hold", kind: "id" },
        { name: "owner", title: "Owner" },
        { name: "version", title: "Version", kind: "count" },
        { name: "expires", title: "Expires", kind: "time" },
    ];
    return panel("Holds", dataTable("Holds", columns, holds));
}

function keyText(key) {
    return (key ?? []).map(cell).join(", ");
}

function listText(names) {
    return names.length > 3
        ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more`
        : names.join(", ");
}

function transactionsText({ smallest_number: from, largest_number: to }) {
    return from === to ? count(from) : `${count(from)} to ${count(to)}`;
}
