async function pick(r) {
    try {
        const headers = { authorization: "Bearer " + (process.env.KVINDEXER_TOKEN || "") };
        const told = await ngx.fetch(r.variables.index + "/v1/pick", { method: "POST", body: r.requestBuffer, headers });
        const to = told.headers.get("x-gateway-destination-endpoint");
        r.variables.pod = to ? to.split(",")[0] : "";
    } catch (e) {
        r.variables.pod = "";
    }
    r.internalRedirect(r.variables.pod ? "@picked" : "@balanced");
}

export default { pick };
