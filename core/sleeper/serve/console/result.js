/** The result of a statement: its rows, a chart of them, or a plan; and downloads of all rows. */

import { FORMATS, readBlob, requestRows } from "./api.js";
import { chooseChart, columnTypes, drawChart, KINDS, omittedRows } from "./chart.js";
import { columnsFor, dataTable } from "./data_table.js";
import { announce, choice, empty, field, h, picture } from "./dom.js";
import { bytes, count } from "./format.js";

/** Returns the elements of a result. */
export function showResult({ sql, rows, hasMore, text, signal }) {
    if (isPlan(sql, rows))
        return [h("p", { class: "about" }, text.replace(/^.* in /, "Explained in ")), ...rows.map(showPlan)];
    const status = h("p", { class: "about" }, hasMore ? `The first ${text}. A download has all rows.` : text);
    if (!rows.length)
        return [status, empty("No rows", h("p", {}, "The statement is correct, and its result is empty."))];
    const place = h("div", { class: "result" });
    const chart = chooseChart(rows);
    const show = {
        table: () => place.replaceChildren(dataTable("Result", columnsFor(rows), rows)),
        chart: () => place.replaceChildren(...showChart(rows, chart, signal)),
    };
    const tabs = chart
        ? switcher(
              [
                  ["table", "Table"],
                  ["chart", "Chart"],
              ],
              (each) => show[each](),
          )
        : "";
    show.table();
    return [h("div", { class: "bar" }, status, tabs, downloads(sql, signal)), place];
}

/** Returns buttons of which one is pressed. */
function switcher(options, onchange) {
    const buttons = options.map(([value, text], index) =>
        h(
            "button",
            {
                type: "button",
                "aria-pressed": String(index === 0),
                onclick: (event) => press(event.currentTarget, value),
            },
            text,
        ),
    );
    function press(button, value) {
        for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
        onchange(value);
    }
    return h("div", { class: "switch", role: "group", "aria-label": "Show the result as" }, ...buttons);
}

function showChart(rows, suggested, signal) {
    const chart = { ...suggested };
    const types = columnTypes(rows);
    const numbers = [...types].filter(([, type]) => type === "number").map(([name]) => [name, name]);
    const names = [...[...types.keys()].map((name) => [name, name]), ["", "row number"]];
    const place = h("div", { class: "result" });
    const draw = () => {
        const omitted = omittedRows(rows, chart);
        const keys = chart.y.map((name, index) =>
            h(
                "span",
                { class: "key" },
                h("span", { class: `swatch s${index}`, "aria-hidden": "true" }),
                name,
            ),
        );
        const legend = h(
            "span",
            { class: "legend" },
            ...keys,
            omitted ? `${count(omitted)} more rows are in the table` : "",
        );
        place.replaceChildren(picture((width) => drawChart(rows, chart, width), legend, signal));
    };
    const set = (change) => {
        Object.assign(chart, change);
        draw();
    };
    const controls = h(
        "div",
        { class: "fields" },
        field(
            "Chart",
            choice(Object.entries(KINDS), chart.kind, (kind) => set({ kind })),
        ),
        field(
            "Across",
            choice(names, chart.x ?? "", (x) => set({ x: x || null })),
        ),
        field(
            "Up",
            choice(numbers, chart.y[0], (name) => set({ y: [name] })),
        ),
    );
    draw();
    return [controls, place];
}

function isPlan(sql, rows) {
    // A table may have columns of these names.
    const isExplained = /\bexplain\b/i.test(sql);
    return isExplained && rows.length > 0 && Object.keys(rows[0]).join() === "plan_type,plan";
}

function showPlan({ plan_type: type, plan }) {
    const title = String(type).replaceAll("_", " ");
    // Long lines are wrapped under their own start, so that the whole plan can be read.
    const lines = plan
        .trimEnd()
        .split("\n")
        .map((line) => {
            const depth = line.length - line.trimStart().length;
            return h("span", { class: "line", vars: { "--depth": `${depth}ch` } }, line.trimStart(), "\n");
        });
    return h(
        "section",
        { class: "panel" },
        h("h2", {}, title.charAt(0).toUpperCase() + title.slice(1)),
        h("pre", { class: "plan" }, ...lines),
    );
}

function downloads(sql, signal) {
    const format = choice(
        Object.entries(FORMATS).map(([value, { title }]) => [value, title]),
        "csv",
    );
    format.setAttribute("aria-label", "Format of the download");
    const button = h(
        "button",
        { type: "button", onclick: () => download(button, sql, format.value, signal) },
        "Download",
    );
    return h("div", { class: "download" }, format, button);
}

/** Runs the statement again, for all of its rows, and saves them under a name. */
async function download(button, sql, format, signal) {
    button.disabled = true;
    try {
        const response = await requestRows(["sql"], { statement: sql }, format, signal);
        const blob = await readBlob(response, (size) => button.replaceChildren(bytes(size)));
        const address = URL.createObjectURL(blob);
        h("a", { href: address, download: `result.${FORMATS[format].ending}` }).click();
        setTimeout(() => URL.revokeObjectURL(address), 60_000);
        button.replaceChildren("Download");
        announce("The download is complete");
    } catch (error) {
        if (signal.aborted) return;
        button.replaceChildren("Failed, try again");
        button.title = error.message;
        announce(`The download failed: ${error.message}`);
    }
    button.disabled = false;
}
