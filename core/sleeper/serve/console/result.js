/** The result of a statement: its rows, a chart of them, or a plan; and downloads of all rows. */

import { FORMATS, readBlob, requestRows } from "./api.js";
import { chooseChart, columnTypes, drawChart, KINDS, omittedRows } from "./chart.js";
import { columnsFor, dataTable } from "./data_table.js";
import { announce, choice, empty, field, h } from "./dom.js";
import { bytes, count } from "./format.js";

/** Returns the elements of a result. */
export function showResult({ sql, rows, hasMore, text, signal }) {
  if (isPlan(rows)) return [h("p", { class: "about" }, text), ...rows.map(showPlan)];
  const status = h("p", { class: "about" }, hasMore ? `The first ${text}. A download has all rows.` : text);
  if (!rows.length) return [status, empty("No rows", h("p", {}, "The statement is correct, and its result is empty."))];
  const place = h("div", {});
  const chart = chooseChart(rows);
  const show = {
    table: () => place.replaceChildren(dataTable("Result", columnsFor(rows), rows)),
    chart: () => place.replaceChildren(...showChart(rows, chart)),
  };
  const tabs = chart ? switcher([["table", "Table"], ["chart", "Chart"]], (each) => show[each]()) : "";
  show.table();
  return [h("div", { class: "bar" }, status, tabs, downloads(sql, signal)), place];
}

/** Returns buttons of which one is pressed. */
function switcher(options, onchange) {
  const buttons = options.map(([value, text], index) =>
    h("button", { type: "button", "aria-pressed": String(index === 0), onclick: (event) => press(event.currentTarget, value) }, text));
  function press(button, value) {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    onchange(value);
  }
  return h("div", { class: "switch", role: "group", "aria-label": "Show the result as" }, ...buttons);
}

function showChart(rows, suggested) {
  const chart = { ...suggested };
  const types = columnTypes(rows);
  const numbers = [...types].filter(([, type]) => type === "number").map(([name]) => [name, name]);
  const names = [...[...types.keys()].map((name) => [name, name]), ["", "row number"]];
  const figure = h("figure", { class: "chart-place" });
  const legend = h("figcaption", {});
  const draw = () => {
    const width = Math.max(320, figure.clientWidth || 800);
    const omitted = omittedRows(rows, chart);
    const keys = chart.y.map((name, index) => h("span", { class: "key" }, h("span", { class: `swatch s${index}`, "aria-hidden": "true" }), name));
    legend.replaceChildren(...keys, omitted ? h("span", { class: "dim" }, `${count(omitted)} more rows are in the table`) : "");
    figure.replaceChildren(drawChart(rows, chart, width), legend);
  };
  const set = (change) => { Object.assign(chart, change); draw(); };
  const controls = h("div", { class: "fields" },
    field("Chart", choice(Object.entries(KINDS), chart.kind, (kind) => set({ kind }))),
    field("Across", choice(names, chart.x ?? "", (x) => set({ x: x || null }))),
    field("Up", choice(numbers, chart.y[0], (name) => set({ y: [name] }))));
  let drawn = 0;
  new ResizeObserver(() => {
    if (figure.clientWidth !== drawn) {
      drawn = figure.clientWidth;
      draw();
    }
  }).observe(figure);
  return [controls, figure];
}

function isPlan(rows) {
  return rows.length > 0 && Object.keys(rows[0]).join() === "plan_type,plan";
}

function showPlan({ plan_type: type, plan }) {
  const title = String(type).replaceAll("_", " ");
  return h("section", { class: "panel" }, h("h2", {}, title), h("pre", { class: "plan", tabindex: "0", "aria-label": title }, plan));
}

function downloads(sql, signal) {
  const format = choice(Object.entries(FORMATS).map(([value, { title }]) => [value, title]), "csv");
  format.setAttribute("aria-label", "Format of the download");
  const button = h("button", { type: "button", onclick: () => download(button, sql, format.value, signal) }, "Download");
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
