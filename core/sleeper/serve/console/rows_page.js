/** Rows of one table: the first ones, a key, or a range of the first key column. */

import { readRows, requestRows } from "./api.js";
import { alignRows, columnsFor, dataTable } from "./data_table.js";
import { announce, empty, field, h, loading, problem } from "./dom.js";
import { fromJson, plural } from "./format.js";

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;

export async function showRows({ table, signal }) {
    const keys = table.schema.rowKeyFields;
    const place = h("div", { class: "rows" });
    const text = (name) => h("input", { name, autocomplete: "off", spellcheck: "false" });
    const inputs = { key: text("key"), min: text("min"), max: text("max") };
    const limit = h("input", {
        name: "limit",
        type: "number",
        min: "1",
        max: String(LIMIT_MAX),
        value: String(LIMIT_DEFAULT),
    });
    const keyHint = keys.length > 1 ? `a JSON list of ${keys.map((each) => each.name).join(", ")}` : null;
    const form = h(
        "form",
        { class: "fields", onsubmit: lookUp },
        field(keys.length > 1 ? "Key" : `${keys[0].name} is`, inputs.key, keyHint),
        field(`${keys[0].name} from`, inputs.min),
        field("to (exclusive)", inputs.max),
        field("Maximum rows", limit),
        h("button", { type: "submit", class: "primary" }, "Look up"),
    );

    async function lookUp(event) {
        event?.preventDefault();
        place.replaceChildren(loading());
        const startMs = performance.now();
        try {
            const body = makeQuery(keys, inputs, limit.value);
            const rows = [];
            for await (const some of readRows(
                await requestRows(["tables", table.name, "query"], body, "json", signal),
            ))
                rows.push(...some);
            if (signal.aborted) return;
            place.replaceChildren(...showFound(table, alignRows(rows), performance.now() - startMs));
        } catch (error) {
            if (!signal.aborted) place.replaceChildren(problem(error));
        }
    }

    lookUp();
    return [form, place];
}

function showFound(table, rows, milliseconds) {
    const text = `${plural(rows.length, "row")} in ${Math.round(milliseconds)} ms`;
    announce(text);
    if (!rows.length) return [empty("No rows", "No row of this table has these keys.")];
    return [h("p", { class: "about" }, text), dataTable(`Rows of ${table.name}`, columnsFor(rows), rows)];
}

/** Returns the body of a query. Throws an error that names the field whose value does not fit. */
function makeQuery(keys, { key, min, max }, limit) {
    const body = { limit: Math.min(Number(limit) || LIMIT_DEFAULT, LIMIT_MAX) };
    if (key.value) body.keys = [keys.length > 1 ? parseList(key.value) : keyValue(keys[0], key.value)];
    if (min.value || max.value) {
        body.ranges = [[min.value, max.value].map((text) => (text ? keyValue(keys[0], text) : null))];
    }
    return body;
}

function parseList(text) {
    try {
        return fromJson(text);
    } catch {
        throw new Error(`key: ${text} is not JSON (expected a list such as ["Oslo", 1])`);
    }
}

function keyValue({ name, type }, text) {
    if (!["IntType", "LongType"].includes(type)) return text;
    if (!/^-?\d+$/.test(text)) throw new Error(`${name}: ${text} is not an integer`);
    return fromJson(text);
}
