/** All tables with their sizes. */

import { ApiError, getJson, getReport } from "./api.js";
import { dataTable, pager, stateBadge } from "./data_table.js";
import { command, empty, facts, h, heading } from "./dom.js";
import { bytes, count } from "./format.js";
import { link } from "./router.js";

const TABLES_PER_PAGE = 100;
const COLUMNS = [
    { name: "name", title: "Table", value: ({ name }) => h("a", { href: link(["tables", name]) }, name) },
    { name: "rows", title: "Rows", kind: "count" },
    { name: "bytes", title: "Size", kind: "bytes" },
    { name: "files", title: "Files", kind: "count", minor: true },
    { name: "leaves", title: "Leaf partitions", kind: "count", minor: true },
    { name: "export_lag", title: "Export lag", kind: "count", minor: true },
    { name: "state", title: "State", value: describeState },
];

export async function showTables({ query, signal, redraw }) {
    const refresh = h("button", { type: "button", onclick: redraw }, "Refresh");
    const page = Math.max(1, Number(query.get("page")) || 1);
    const { rows, tables } = await readTables(page, signal);
    const pages = Math.max(1, Math.ceil(Number(tables) / TABLES_PER_PAGE));
    const head = heading("Tables", null, refresh);
    if (!Number(tables)) return [head, noTables()];
    const isComplete = pages === 1 && rows.every((row) => row.rows !== undefined);
    const total = (name) => rows.reduce((sum, row) => sum + Number(row[name] ?? 0), 0);
    const sums = isComplete
        ? [
              ["Rows", count(total("rows"))],
              ["Size", bytes(total("bytes"))],
              ["Files", count(total("files"))],
          ]
        : [];
    const columns = COLUMNS.filter(({ name }) =>
        rows.some((row) => row[name] !== undefined && row[name] !== null),
    );
    return [
        head,
        facts([["Tables", count(tables)], ...sums]),
        dataTable("Tables", columns, rows),
        pager("tables", page, pages, (number) => link(["tables"], { page: number })),
    ];
}

/** Returns a page of the report on tables, or of names, for a caller who may not see all of every table. */
async function readTables(page, signal) {
    const offset = (page - 1) * TABLES_PER_PAGE;
    try {
        return await getReport("tables", { offset, limit: TABLES_PER_PAGE }, signal);
    } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 400) throw error;
        const { tables } = await getJson(["tables"], {}, signal);
        return { rows: tables.slice(offset, offset + TABLES_PER_PAGE), tables: tables.length };
    }
}

function describeState(row) {
    if (row.state && row.state !== "active") return stateBadge(row.state);
    return stateBadge(row.online ? "online" : "offline");
}

function noTables() {
    return empty(
        "There are no tables yet",
        h("p", {}, "Create a table like your files and ingest them. Then refresh this page."),
        command(
            "sleeper table create readings --like readings.csv --key city --sort day\nsleeper ingest readings readings.csv",
        ),
    );
}
