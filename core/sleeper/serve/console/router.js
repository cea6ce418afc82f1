/** Places of the console in the fragment of the address, such as `#/tables/flights/files?page=2`. */

/** Returns the parts of the place and its parameters. */
export function readPlace(hash = location.hash) {
    const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const parts = path.split("/").filter(Boolean).map(decode);
    return { parts: parts.length ? parts : ["tables"], query: new URLSearchParams(query) };
}

/** Returns the address of a place. */
export function link(parts, parameters = {}) {
    const given = Object.entries(parameters).filter(
        ([, value]) => value !== null && value !== undefined && value !== "",
    );
    const query = new URLSearchParams(given).toString();
    return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Changes the address to another place of the same view, without drawing it again. */
export function replacePlace(parts, parameters = {}) {
    history.replaceState(null, "", link(parts, parameters));
}

function decode(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}
