/** Formats numbers, times and values as text. Integers beyond 2^53 are BigInt, long decimals Decimal. */

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const NONE = "–";

/** A decimal with digits that a number cannot hold. Charts draw the number that is nearest to it. */
export class Decimal {
    constructor(text) {
        this.text = text;
    }

    toString() {
        return this.text;
    }

    valueOf() {
        return Number(this.text);
    }

    toJSON() {
        return exactNumber(this);
    }
}

/** Returns a whole number with separators. */
export function count(value) {
    return isMissing(value) ? NONE : value.toLocaleString("en-GB", { maximumFractionDigits: 2 });
}

/** Returns a number with its noun, such as `1 file` or `2 files`. */
export function plural(value, one, several = one + "s") {
    return `${count(value)} ${Number(value) === 1 ? one : several}`;
}

/** Returns a size with its unit, such as `1.5 MiB`. */
export function bytes(value) {
    if (isMissing(value)) return NONE;
    let size = Number(value);
    let power = 0;
    for (; size >= 1024 && power < BYTE_UNITS.length - 1; power += 1) size /= 1024;
    return `${size.toFixed(power && size < 100 ? 1 : 0)} ${BYTE_UNITS[power]}`;
}

/** Returns a duration, such as `340 ms`, `12.5 s` or `3 min 20 s`. */
export function duration(seconds) {
    if (isMissing(seconds)) return NONE;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 60) return `${seconds.toFixed(1)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Returns the local date and time to the second. */
export function time(text) {
    if (isMissing(text)) return NONE;
    const date = new Date(text);
    if (Number.isNaN(date.getTime())) return String(text);
    const pad = (number) => String(number).padStart(2, "0");
    const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
    return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Returns the time since a moment, such as `5 min ago`. */
export function ago(ms, nowMs = Date.now()) {
    const seconds = Math.max(0, (nowMs - ms) / 1000);
    if (seconds < 60) return "just now";
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} d ago`;
}

/** Returns a value of a row as text. */
export function cell(value) {
    if (value === null || value === undefined) return "";
    return typeof value === "object" && !(value instanceof Decimal) ? toJson(value) : String(value);
}

/** Returns a value as JSON text with all digits of its numbers. */
export function toJson(value, indent = undefined) {
    return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? exactNumber(each) : each), indent);
}

/** Returns JSON text with a line for each member. Numbers and texts stay as they are written. */
export function indentJson(text) {
    JSON.parse(text);
    let depth = 0;
    const line = () => "\n" + "  ".repeat(depth);
    return text.replace(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|\s+|./gsu, (token) => {
        if (/^\s/u.test(token)) return "";
        if (token.length > 1) return token[0] === '"' ? token : token[0] + token.at(-1);
        if (token === "{" || token === "[") return token + (depth++, line());
        if (token === "}" || token === "]") return (depth--, line()) + token;
        if (token === ",") return token + line();
        return token === ":" ? ": " : token;
    });
}

/** Returns the value of JSON text. Numbers that would lose digits become BigInt or Decimal. */
export function fromJson(text) {
    return JSON.parse(text, (_, value, context) =>
        typeof value === "number" && context ? keepDigits(value, context.source) : value,
    );
}

function keepDigits(value, source) {
    if (/^-?\d+$/.test(source)) return Number.isSafeInteger(value) ? value : BigInt(source);
    const isExact = significantDigits(source) === significantDigits(String(value)) && !Object.is(value, -0);
    return isExact ? value : new Decimal(source);
}

function significantDigits(text) {
    return text.replace(/e.*/i, "").replace(/\D/g, "").replace(/^0+|0+$/g, "");
}

function exactNumber(value) {
    return JSON.rawJSON ? JSON.rawJSON(String(value)) : Number(value);
}

function isMissing(value) {
    return value === null || value === undefined || value === "";
}
