/** Words that complete a statement: tables, columns of its tables, keywords and functions. */

import { quoteName } from "./schema.js";

const SUGGESTIONS_MAX = 8;
const KEYWORDS = (
    "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT RIGHT FULL INNER CROSS ON USING AS AND OR NOT IN " +
    "BETWEEN LIKE ILIKE IS NULL CASE WHEN THEN ELSE END DISTINCT UNION ALL INTERSECT EXCEPT WITH EXPLAIN ANALYZE " +
    "DESCRIBE VALUES ASC DESC OVER PARTITION EXISTS CAST TRUE FALSE INTERVAL"
).split(" ");
const FUNCTIONS = (
    "count sum avg min max median stddev approx_distinct approx_percentile_cont array_agg string_agg first_value " +
    "last_value row_number rank lag lead coalesce nullif abs round floor ceil power sqrt ln log lower upper trim " +
    "substr length replace split_part starts_with concat date_trunc date_part date_bin to_timestamp now random"
).split(" ");
const WORDS = new Set(KEYWORDS);
const TOKEN =
    /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)|([\s\S])/g;

/** Yields the parts of a statement: their text and their kind, for its colours. */
export function* tokens(text) {
    for (const [whole, comment, string, quoted, number, word] of text.matchAll(TOKEN)) {
        if (comment) yield { text: whole, kind: "comment" };
        else if (string) yield { text: whole, kind: "string" };
        else if (quoted) yield { text: whole, kind: "name" };
        else if (number) yield { text: whole, kind: "number" };
        else if (word) yield { text: whole, kind: WORDS.has(whole.toUpperCase()) ? "keyword" : "word" };
        else yield { text: whole, kind: "other" };
    }
}

/** Returns the word before the caret and where it starts; null within a string or comment. */
export function wordAt(text, caret) {
    let start = 0;
    for (const { text: part, kind } of tokens(text)) {
        const end = start + part.length;
        const isInside = start < caret && caret < end;
        if (
            (kind === "comment" || kind === "string") &&
            (isInside || (caret === end && !/(\*\/|')$/.test(part)))
        )
            return null;
        start = end;
    }
    const word = /[A-Za-z_]\w*$/.exec(text.slice(0, caret))?.[0] ?? "";
    return { word, start: caret - word.length };
}

/** Returns the tables whose names are in a statement. */
export function tablesIn(text, tables) {
    const words = new Set([...tokens(text)].map((each) => each.text.replace(/^"|"$/g, "").toLowerCase()));
    return tables.filter((name) => words.has(name.toLowerCase()));
}

/** Returns suggestions for a word: tables after FROM and JOIN, else columns first. */
export function suggest(text, { word, start }, tables, columns) {
    const before = text.slice(0, start);
    const wantsTable = /\b(from|join)\s+$/i.test(before);
    const named = (names, kind, about = () => "") =>
        names.map((each) => ({ text: each, insert: quoteName(each), kind, about: about(each) }));
    const tableItems = named(tables, "table");
    const columnItems = columns.map(({ name, type, table }) => ({
        text: name,
        insert: quoteName(name),
        kind: "column",
        about: `${type} · ${table}`,
    }));
    const keywordItems = KEYWORDS.map((each) => ({ text: each, insert: each, kind: "keyword", about: "" }));
    const functionItems = FUNCTIONS.map((each) => ({
        text: each,
        insert: `${each}(`,
        kind: "function",
        about: "",
    }));
    const items = wantsTable
        ? tableItems
        : [...columnItems, ...tableItems, ...keywordItems, ...functionItems];
    const wanted = word.toLowerCase();
    const starting = items.filter(
        (each) => each.text.toLowerCase().startsWith(wanted) && each.insert !== word,
    );
    const containing = items.filter(
        (each) => wanted.length > 1 && each.text.toLowerCase().indexOf(wanted) > 0,
    );
    return unique([...starting, ...containing]).slice(0, SUGGESTIONS_MAX);
}

function unique(items) {
    return [...new Map(items.map((each) => [`${each.kind} ${each.text} ${each.about}`, each])).values()];
}
