/** Queries: the editor, the running statement, its result, and earlier statements. */

import { getJson, readRows, requestRows } from "./api.js";
import { tablesIn } from "./completion.js";
import { alignRows } from "./data_table.js";
import { announce, h, heading, panel, problem } from "./dom.js";
import { makeEditor } from "./editor.js";
import { ago, count, duration, plural } from "./format.js";
import { addToHistory, clearHistory, readHistory } from "./query_history.js";
import { showResult } from "./result.js";
import { link, replacePlace } from "./router.js";
import { quoteName, readColumns } from "./schema.js";

const ROWS_SHOWN_MAX = 1000;
const DRAFT = "sleeper.draft";

export async function showQuery({ query, signal }) {
    const names = await loadNames(signal);
    const run = h(
        "button",
        { type: "button", class: "primary", onclick: () => start(editor.value) },
        "Run",
        h("kbd", { "aria-hidden": "true" }, "Ctrl ⏎"),
    );
    const cancel = h(
        "button",
        { type: "button", hidden: true, onclick: () => running?.abort() },
        "Cancel",
        h("kbd", { "aria-hidden": "true" }, "Esc"),
    );
    const explain = h(
        "button",
        { type: "button", onclick: () => start(`EXPLAIN ${editor.value.replace(/^\s*explain\s+/i, "")}`) },
        "Explain",
    );
    const share = h("button", { type: "button", onclick: () => copyLink(share, editor.value) }, "Copy link");
    const result = h("div", { class: "result" });
    const history = h("div", {});
    let running = null;
    const editor = makeEditor({
        value: query.get("sql") ?? sessionStorage.getItem(DRAFT) ?? firstStatement(names.tables),
        readNames: (text) => ({ tables: names.tables, columns: columnsIn(names, text) }),
        onRun: () => start(editor.value),
        onCancel: () => running?.abort(),
        onChange: (text) => sessionStorage.setItem(DRAFT, text),
    });

    async function start(sql) {
        if (running || !sql.trim()) return;
        running = new AbortController();
        signal.addEventListener("abort", () => running?.abort());
        replacePlace(["query"], { sql: editor.value });
        setRunning(true);
        const startMs = performance.now();
        const clock = setInterval(() => showProgress(result, performance.now() - startMs), 200);
        const entry = { sql, atMs: Date.now() };
        try {
            const { rows, hasMore } = await readFirstRows(sql, running);
            const milliseconds = performance.now() - startMs;
            const text = `${count(rows.length)}${hasMore ? "+" : ""} ${rows.length === 1 ? "row" : "rows"} in ${duration(milliseconds / 1000)}`;
            result.replaceChildren(...showResult({ sql, rows, hasMore, text, signal }));
            announce(text);
            addToHistory({ ...entry, rows: rows.length, hasMore, milliseconds: Math.round(milliseconds) });
        } catch (error) {
            const isCancelled = error.name === "AbortError";
            result.replaceChildren(
                isCancelled
                    ? h("p", { class: "about" }, "Cancelled. The server stopped the query.")
                    : problem(error),
            );
            if (isCancelled) announce("Cancelled");
            addToHistory({ ...entry, error: isCancelled ? "cancelled" : error.message.slice(0, 300) });
        }
        clearInterval(clock);
        running = null;
        setRunning(false);
        showHistory();
    }

    function setRunning(isRunning) {
        run.disabled = isRunning;
        explain.disabled = isRunning;
        cancel.hidden = !isRunning;
        result.setAttribute("aria-busy", String(isRunning));
    }

    function showHistory() {
        const entries = readHistory();
        const clear = h(
            "button",
            {
                type: "button",
                class: "quiet",
                onclick: () => {
                    clearHistory();
                    showHistory();
                },
            },
            "Clear",
        );
        const items = entries.map((each) =>
            h(
                "li",
                {},
                h(
                    "button",
                    { type: "button", class: "entry", onclick: () => reopen(each.sql) },
                    h("code", {}, each.sql.replace(/\s+/g, " ").slice(0, 160)),
                    h("span", { class: each.error ? "bad" : "dim" }, describeEntry(each)),
                ),
            ),
        );
        history.replaceChildren(
            entries.length
                ? h("ol", { class: "entries" }, ...items)
                : h("p", { class: "dim" }, "Statements that you run appear here."),
            entries.length ? clear : "",
        );
    }

    function reopen(sql) {
        editor.setValue(sql);
        replacePlace(["query"], { sql });
        editor.focus();
    }

    showHistory();
    result.replaceChildren(
        h("p", { class: "about" }, "Run one SELECT over all tables. The result appears here."),
    );
    const help = h(
        "p",
        { id: "editor-help", class: "unseen" },
        "Control Enter runs the statement, Escape cancels it, Control Space suggests names.",
    );
    return [
        heading("Query"),
        h(
            "div",
            { class: "query" },
            h(
                "div",
                { class: "work" },
                help,
                editor.element,
                h("div", { class: "bar actions" }, run, cancel, explain, share),
                result,
            ),
            h("aside", { class: "past", "aria-label": "Earlier statements" }, panel("History", history)),
        ),
    ];
}

/** Reads rows up to the maximum. Reading no further cancels the query. */
async function readFirstRows(sql, running) {
    const rows = [];
    const response = await requestRows(["sql"], { statement: sql }, "json", running.signal);
    for await (const some of readRows(response)) {
        // A part of the response may have more rows than a call may have arguments.
        rows.push(...some.slice(0, ROWS_SHOWN_MAX + 1));
        if (rows.length > ROWS_SHOWN_MAX) break;
    }
    return { rows: alignRows(rows.slice(0, ROWS_SHOWN_MAX)), hasMore: rows.length > ROWS_SHOWN_MAX };
}

/** Returns the names of tables, and a place for the columns of those that a statement names. */
async function loadNames(signal) {
    const { tables } = await getJson(["tables"], {}, signal);
    return { tables: tables.map((each) => each.name), columns: new Map(), signal };
}

function columnsIn({ tables, columns, signal }, text) {
    return tablesIn(text, tables).flatMap((table) => {
        if (!columns.has(table)) {
            columns.set(table, []);
            getJson(["tables", table], {}, signal)
                .then(({ schema }) =>
                    columns.set(
                        table,
                        readColumns(schema).map(({ name, text: type }) => ({ name, type, table })),
                    ),
                )
                .catch(() => columns.delete(table));
        }
        return columns.get(table);
    });
}

function firstStatement(tables) {
    const [name] = tables;
    return name === undefined ? "SELECT 1 AS one" : `SELECT *\nFROM ${quoteName(name)}\nLIMIT 100`;
}

function describeEntry({ atMs, rows, hasMore, milliseconds, error }) {
    const outcome =
        error ?? `${hasMore ? "over " : ""}${plural(rows, "row")}, ${duration(milliseconds / 1000)}`;
    return `${ago(atMs)} · ${outcome}`;
}

function showProgress(place, milliseconds) {
    const text = `Running for ${duration(milliseconds / 1000)}`;
    const shown = place.querySelector(".loading span:last-child");
    if (shown) shown.textContent = text;
    else
        place.replaceChildren(
            h(
                "div",
                { class: "loading" },
                h("span", { class: "spinner", "aria-hidden": "true" }),
                h("span", {}, text),
            ),
        );
}

async function copyLink(button, sql) {
    const address = new URL(link(["query"], { sql }), location.href).href;
    try {
        await navigator.clipboard.writeText(address);
        button.textContent = "Copied";
    } catch {
        button.textContent = "The address bar has the link";
    }
    replacePlace(["query"], { sql });
    announce(button.textContent);
    setTimeout(() => button.replaceChildren("Copy link"), 2000);
}
