/** The latest statements of this browser. */

const KEY = "sleeper.history";
const ENTRIES_MAX = 50;
const CHARACTERS_MAX = 20_000;

/** Returns entries, newest first: `sql`, `atMs`, `rows`, `milliseconds`, `error`. */
export function readHistory() {
    try {
        const entries = JSON.parse(localStorage.getItem(KEY) ?? "[]");
        return Array.isArray(entries) ? entries.filter((each) => typeof each?.sql === "string") : [];
    } catch {
        return [];
    }
}

/** Adds an entry in front, in place of an earlier one of the same statement. */
export function addToHistory(entry) {
    if (entry.sql.length > CHARACTERS_MAX) return;
    const others = readHistory().filter((each) => each.sql !== entry.sql);
    try {
        localStorage.setItem(KEY, JSON.stringify([entry, ...others].slice(0, ENTRIES_MAX)));
    } catch {
        // The browser's storage is full or forbidden, so this statement is not remembered.
    }
}

export function clearHistory() {
    localStorage.removeItem(KEY);
}
