/** Charts of a result, in SVG: bars, lines or points, chosen by the types of the columns. */

import { isNumber } from "./data_table.js";
import { svg } from "./dom.js";
import { cell, count } from "./format.js";

export const KINDS = { bar: "Bars", line: "Line", scatter: "Points" };
export const SERIES_MAX = 5;
const BARS_MAX = 60;
const HEIGHT = 340;
const MARGIN = { top: 16, right: 16, bottom: 56, left: 72 };
const TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$/;

/** Returns the type of each column: `number`, `time` or `category`. */
export function columnTypes(rows) {
    const types = new Map();
    for (const name of Object.keys(rows[0] ?? {})) {
        const values = rows.map((row) => row[name]).filter((value) => value !== null);
        const all = (test) => values.length > 0 && values.every(test);
        if (all(isNumber)) types.set(name, "number");
        else if (all((value) => typeof value === "string" && TIME.test(value))) types.set(name, "time");
        else types.set(name, "category");
    }
    return types;
}

/** Returns the chart that suits the rows, null if no column has numbers. */
export function chooseChart(rows) {
    const types = columnTypes(rows);
    const named = (type) => [...types].filter(([, each]) => each === type).map(([name]) => name);
    const [numbers, times, categories] = ["number", "time", "category"].map(named);
    if (!rows.length || !numbers.length) return null;
    if (times.length) return { kind: "line", x: times[0], y: numbers.slice(0, SERIES_MAX) };
    if (categories.length) return { kind: "bar", x: categories[0], y: numbers.slice(0, 1) };
    if (numbers.length === 1) return { kind: "bar", x: null, y: numbers };
    const [x, ...y] = numbers;
    return {
        kind: isRising(rows.map((row) => Number(row[x]))) ? "line" : "scatter",
        x,
        y: y.slice(0, SERIES_MAX),
    };
}

/** Returns the chart as an SVG element of a width, with a legend in its description. */
export function drawChart(rows, chart, width) {
    const types = columnTypes(rows);
    const shown = chart.kind === "bar" ? rows.slice(0, BARS_MAX) : rows;
    const isBand = chart.kind === "bar" || chart.x === null || types.get(chart.x) === "category";
    const plot = {
        left: MARGIN.left,
        top: MARGIN.top,
        width: width - MARGIN.left - MARGIN.right,
        height: HEIGHT - MARGIN.top - MARGIN.bottom,
    };
    const x = isBand ? bandScale(shown, chart.x, plot) : valueScale(shown, chart.x, types.get(chart.x), plot);
    const y = heightScale(shown, chart, plot);
    const marks = { bar: drawBars, line: drawLines, scatter: drawPoints }[chart.kind](
        shown,
        chart,
        x,
        y,
        plot,
    );
    const label = `${KINDS[chart.kind]}: ${chart.y.join(", ")} by ${chart.x ?? "row"}, ${count(shown.length)} rows`;
    return svg(
        "svg",
        {
            viewBox: `0 0 ${width} ${HEIGHT}`,
            width,
            height: HEIGHT,
            role: "img",
            "aria-label": label,
            class: "chart",
        },
        ...drawAxes(x, y, plot),
        axisTitle(chart.x ?? "row", plot.left + plot.width / 2, HEIGHT - 8),
        ...marks,
    );
}

/** Returns how many rows a chart leaves out. */
export function omittedRows(rows, chart) {
    return chart.kind === "bar" ? Math.max(0, rows.length - BARS_MAX) : 0;
}

function bandScale(rows, name, plot) {
    const step = plot.width / Math.max(1, rows.length);
    const every = Math.max(1, Math.ceil(rows.length / Math.max(1, Math.floor(plot.width / 76))));
    const text = (index) =>
        shorten(
            name === null ? String(index + 1) : cell(rows[index][name]),
            Math.max(4, Math.floor((step * every) / 7)),
        );
    const ticks = rows.map((_, index) => index).filter((index) => index % every === 0);
    return {
        step,
        at: (_, index) => plot.left + step * (index + 0.5),
        ticks: ticks.map((index) => ({ place: plot.left + step * (index + 0.5), text: text(index) })),
    };
}

function valueScale(rows, name, type, plot) {
    const read = (row) =>
        row[name] === null ? NaN : type === "time" ? timeMs(row[name]) : Number(row[name]);
    const values = rows.map(read).filter(Number.isFinite);
    const [low, high] = widen(Math.min(...values), Math.max(...values));
    const scale = (value) => plot.left + (plot.width * (value - low)) / (high - low);
    const number = Math.max(2, Math.floor(plot.width / 110));
    const ticks =
        type === "time"
            ? timeTicks(low, high, number)
            : niceTicks(low, high, number).map((value) => ({ value, text: short(value) }));
    return {
        at: (row) => scale(read(row)),
        ticks: ticks.map(({ value, text }) => ({ place: scale(value), text })),
    };
}

function heightScale(rows, { kind, y }, plot) {
    const values = rows
        .flatMap((row) => y.map((name) => (row[name] === null ? NaN : Number(row[name]))))
        .filter(Number.isFinite);
    const zero = kind === "bar" ? [0] : [];
    const ticks = niceTicks(...widen(Math.min(...values, ...zero), Math.max(...values, ...zero)), 5);
    const [low, high] = [ticks[0], ticks[ticks.length - 1]];
    const at = (value) => plot.top + plot.height * (1 - (value - low) / (high - low));
    return {
        at,
        ticks: ticks.map((value) => ({ place: at(value), text: short(value) })),
        base: at(Math.max(low, Math.min(0, high))),
    };
}

function drawAxes(x, y, plot) {
    const bottom = plot.top + plot.height;
    const lines = y.ticks.map(({ place }) =>
        svg("line", { class: "grid", x1: plot.left, x2: plot.left + plot.width, y1: place, y2: place }),
    );
    const left = y.ticks.map(({ place, text }) =>
        svg("text", { class: "tick", x: plot.left - 10, y: place + 4, "text-anchor": "end" }, text),
    );
    const under = x.ticks.map(({ place, text }) =>
        svg("text", { class: "tick", x: place, y: bottom + 20, "text-anchor": "middle" }, text),
    );
    return [
        ...lines,
        svg("line", { class: "axis", x1: plot.left, x2: plot.left + plot.width, y1: y.base, y2: y.base }),
        ...left,
        ...under,
    ];
}

function axisTitle(text, x, y) {
    return svg("text", { class: "axis-title", x, y, "text-anchor": "middle" }, shorten(text, 60));
}

function drawBars(rows, { x: nameOfX, y: names }, x, y) {
    const width = Math.max(1, Math.min(48, (x.step * 0.72) / names.length));
    return rows.flatMap((row, index) =>
        names.flatMap((name, series) => {
            if (row[name] === null) return [];
            const top = y.at(Number(row[name]));
            const left = x.at(row, index) - (width * names.length) / 2 + width * series;
            const shape = {
                class: `series s${series}`,
                x: left,
                width,
                y: Math.min(top, y.base),
                height: Math.max(1, Math.abs(y.base - top)),
                rx: Math.min(3, width / 3),
            };
            return [svg("rect", shape, title(row, nameOfX, name, index))];
        }),
    );
}

function drawLines(rows, { x: nameOfX, y: names }, x, y) {
    return names.flatMap((name, series) => {
        const points = rows.map((row, index) => ({ row, index, left: x.at(row, index), value: row[name] }));
        const known = points
            .filter(({ value, left }) => value !== null && Number.isFinite(left))
            .sort((a, b) => a.left - b.left);
        const path = known
            .map(({ left, value }) => `${left.toFixed(1)},${y.at(Number(value)).toFixed(1)}`)
            .join(" ");
        const dots =
            known.length > 80
                ? []
                : known.map(({ row, index, left, value }) =>
                      svg(
                          "circle",
                          { class: `series s${series}`, cx: left, cy: y.at(Number(value)), r: 3 },
                          title(row, nameOfX, name, index),
                      ),
                  );
        return [svg("polyline", { class: `line s${series}`, points: path, fill: "none" }), ...dots];
    });
}

function drawPoints(rows, { x: nameOfX, y: names }, x, y) {
    return names.flatMap((name, series) =>
        rows.flatMap((row, index) => {
            const left = x.at(row, index);
            if (row[name] === null || !Number.isFinite(left)) return [];
            return [
                svg(
                    "circle",
                    { class: `series point s${series}`, cx: left, cy: y.at(Number(row[name])), r: 3.5 },
                    title(row, nameOfX, name, index),
                ),
            ];
        }),
    );
}

function title(row, nameOfX, name, index) {
    return svg(
        "title",
        {},
        `${nameOfX === null ? `row ${index + 1}` : cell(row[nameOfX])}\n${name}: ${cell(row[name])}`,
    );
}

/** Returns a time in milliseconds. Times without a zone are in UTC, as the server has them. */
function timeMs(text) {
    const hasZone = /Z|[+-]\d\d:?\d\d$/.test(text.slice(10));
    return Date.parse(text.length > 10 && !hasZone ? `${text.replace(" ", "T")}Z` : text.replace(" ", "T"));
}

function timeTicks(low, high, number) {
    const span = high - low;
    const [start, end] = span > 2 * 86_400_000 ? [0, 10] : [11, span > 600_000 ? 16 : 19];
    return Array.from({ length: number }, (_, index) => {
        const value = low + (span * (index + 0.5)) / number;
        return { value, text: new Date(value).toISOString().slice(start, end) };
    });
}

/** Returns round numbers at equal distances that cover a span. */
function niceTicks(low, high, number) {
    const rough = (high - low) / number;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const first = Math.floor(low / step) * step;
    const length = Math.ceil((high - first) / step - 1e-9) + 1;
    return Array.from({ length }, (_, index) => Number((first + index * step).toPrecision(12)));
}

function widen(low, high) {
    if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
    return low === high ? [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
}

function short(value) {
    return value.toLocaleString("en-GB", {
        notation: Math.abs(value) >= 10_000 ? "compact" : "standard",
        maximumSignificantDigits: 4,
    });
}

function shorten(text, length) {
    return text.length > length ? `${text.slice(0, Math.max(1, length - 1))}…` : text;
}

function isRising(values) {
    return values.every((value, index) => index === 0 || value > values[index - 1]);
}
