/** Requests to the server. The token is kept for the tab only. */

import { fromJson, toJson } from "./format.js";

const TOKEN = "sleeper.token";
export const FORMATS = {
    csv: { title: "CSV", mediaType: "text/csv", ending: "csv" },
    json: { title: "JSON lines", mediaType: "application/x-ndjson", ending: "jsonl" },
    parquet: { title: "Parquet", mediaType: "application/vnd.apache.parquet", ending: "parquet" },
    arrow: { title: "Arrow stream", mediaType: "application/vnd.apache.arrow.stream", ending: "arrows" },
};

/** A response that is not a success. */
export class ApiError extends Error {
    constructor(status, reason) {
        super(reason);
        this.status = status;
    }
}

export function hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
}

export function setToken(token) {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
}

/** Returns the JSON of a path, whose parts and parameters may have any characters. */
export async function getJson(parts, parameters = {}, signal = undefined) {
    const response = await send(makePath(parts, parameters), { signal });
    return fromJson(await response.text());
}

/** Returns the rows of a report, and its summary, over all of its listings. */
export async function getReport(report, parameters, signal) {
    const { reports, tables } = await getJson(["status"], { report, ...parameters }, signal);
    return { summary: reports[0]?.summary ?? "", rows: reports.flatMap((each) => each.rows), tables };
}

/** Returns the response to a request for rows. Aborting the signal cancels the query. */
export function requestRows(parts, body, format, signal) {
    const headers = { "Content-Type": "application/json", Accept: FORMATS[format].mediaType };
    return send(makePath(parts, {}), { method: "POST", headers, body: toJson(body), signal });
}

/** Yields lists of rows of JSON lines. The last line of an incomplete response has the reason. */
export async function* readRows(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let last = null;
    try {
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
            const lines = (rest + part.value).split("\n");
            rest = lines.pop();
            if (!lines.length) continue;
            if (last !== null) lines.unshift(last);
            last = lines.pop();
            if (lines.length) yield lines.map(fromJson);
        }
    } catch (error) {
        const reason = error.name === "AbortError" ? null : readReason(last);
        throw reason === null ? error : new ApiError(200, reason);
    } finally {
        reader.cancel().catch(() => {});
    }
    if (last !== null) yield [fromJson(last)];
}

/** Reads a whole response. `onBytes` gets the number of bytes so far. */
export async function readBlob(response, onBytes) {
    const chunks = [];
    let size = 0;
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
        chunks.push(part.value);
        size += part.value.length;
        onBytes(size);
    }
    return new Blob(chunks);
}

function makePath(parts, parameters) {
    const query = new URLSearchParams(
        Object.entries(parameters).filter(
            ([, value]) => value !== undefined && value !== null && value !== "",
        ),
    ).toString();
    return parts.map(encodeURIComponent).join("/") + (query ? `?${query}` : "");
}

async function send(path, options) {
    const headers = { ...options.headers };
    const token = sessionStorage.getItem(TOKEN);
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
        response = await fetch(path, { ...options, headers });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError(0, `cannot reach the server at ${location.host}: is it running?`);
    }
    if (response.ok) return response;
    const reason = readReason(await response.text()) ?? response.statusText;
    if (response.status === 401) window.dispatchEvent(new CustomEvent("unauthorized"));
    throw new ApiError(response.status, reason);
}

function readReason(text) {
    try {
        const body = JSON.parse(text);
        return body && body.error !== undefined && typeof body.reason === "string" ? body.reason : null;
    } catch {
        return null;
    }
}
