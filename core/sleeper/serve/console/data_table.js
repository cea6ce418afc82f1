/** Tables of rows: aligned by kind, with their own scrolling, so that the page never scrolls sideways. */

import { h } from "./dom.js";
import { bytes, cell, count, Decimal, duration, time } from "./format.js";

const FORMATS = { count, bytes, seconds: duration, time, text: cell, code: cell, id: cell };
const RIGHT = new Set(["count", "bytes", "seconds"]);
const STATES = {
    committed: "good",
    finished: "good",
    completed: "good",
    ended: "good",
    active: "good",
    online: "good",
    running: "busy",
    in_progress: "busy",
    accepted: "busy",
    creating: "busy",
    failed: "bad",
    rejected: "bad",
    lost: "bad",
    died: "bad",
    unreadable: "bad",
    partially_failed: "bad",
};
const MARKS = { good: "✓", busy: "▸", bad: "✕", other: "·" };

/**
 * Returns a table. A column has `name`, `title`, `kind`, and optionally `value(row)`, which returns a
 * value or an element, and `minor`, for columns that narrow screens leave out.
 */
export function dataTable(title, columns, rows) {
    const head = h(
        "tr",
        {},
        ...columns.map((each) => h("th", { scope: "col", class: classes(each) }, each.title)),
    );
    const body = h(
        "tbody",
        {},
        ...rows.map((row) => h("tr", {}, ...columns.map((each) => makeCell(each, row)))),
    );
    const table = h("table", {}, h("caption", { class: "unseen" }, title), h("thead", {}, head), body);
    return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": title }, table);
}

/** Returns links to the pages before and after this one, or nothing if there is one page. */
export function pager(things, page, pages, place) {
    if (pages === 1) return "";
    const step = (number, text) =>
        number >= 1 && number <= pages
            ? h("a", { class: "button", href: place(number) }, text)
            : h("span", { class: "button off", "aria-disabled": "true" }, text);
    return h(
        "nav",
        { class: "pager", "aria-label": `Pages of ${things}` },
        step(page - 1, "Previous"),
        h("span", {}, `Page ${count(page)} of ${count(pages)}`),
        step(page + 1, "Next"),
    );
}

/** Returns rows that all have the members of all: a row lacks the member of JSON that it has no value of. */
export function alignRows(rows) {
    const names = new Set(rows.flatMap(Object.keys));
    if (rows.every((row) => Object.keys(row).length === names.size)) return rows;
    return rows.map((row) => Object.fromEntries([...names].map((name) => [name, row[name] ?? null])));
}

/** Returns columns for rows whose members are unknown: the members of the first row. */
export function columnsFor(rows) {
    return Object.keys(rows[0] ?? {}).map((name, index) => ({
        name,
        title: name,
        kind: rows.some((row) => isNumber(Object.values(row)[index])) ? "number" : "text",
    }));
}

export function isNumber(value) {
    return typeof value === "number" || typeof value === "bigint" || value instanceof Decimal;
}

/** Returns a state with its mark, so that its meaning needs no colour. */
export function stateBadge(state) {
    const kind = stateKind(state);
    const text = String(state).toLowerCase().replaceAll("_", " ");
    return h("span", { class: `state ${kind}` }, h("span", { "aria-hidden": "true" }, MARKS[kind]), text);
}

/** Returns whether a state is good, bad, busy or another one. */
export function stateKind(state) {
    return STATES[String(state).toLowerCase().replaceAll(" ", "_")] ?? "other";
}

/** Returns the mark of a state. */
export function stateMark(state) {
    return MARKS[stateKind(state)];
}

function makeCell(column, row) {
    const value = column.value ? column.value(row) : row[column.name];
    if (value instanceof Node) return h("td", { class: classes(column) }, value);
    const text = (FORMATS[column.kind] ?? cell)(value);
    const isNull = value === null || value === undefined;
    const title = text.length > 40 ? text : null;
    return h("td", { class: `${classes(column)}${isNull ? " none" : ""}`, title }, isNull ? "" : text);
}

function classes({ kind = "text", minor = false }) {
    const right = RIGHT.has(kind) || kind === "number" ? "right" : "";
    return [kind, right, minor ? "minor" : ""].filter(Boolean).join(" ");
}
