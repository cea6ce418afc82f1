/** Names and columns of tables. */

/** Returns a name as SQL, quoted if it needs quotes. */
export function quoteName(name) {
    return /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** Returns a name for a command line, quoted if it needs quotes. */
export function shellName(name) {
    return /^[\w.-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/** Returns the columns of a table's schema, with their roles and types. */
export function readColumns(schema) {
    const roles = [
        ["row key", "rowKeyFields"],
        ["sort key", "sortKeyFields"],
        ["value", "valueFields"],
    ];
    return roles.flatMap(([role, member]) =>
        (schema[member] ?? []).map((each) => ({ ...each, role, text: typeText(each.type) })),
    );
}

function typeText(type) {
    if (typeof type === "string") return type.replace(/Type$/, "").toLowerCase();
    const [[name, inner]] = Object.entries(type);
    const parts = Object.values(inner ?? {}).map(typeText);
    return `${name.replace(/Type$/, "").toLowerCase()}<${parts.join(", ")}>`;
}
