async function pick(r) {
    try {
        const told = await ngx.fetch(r.variables.index + "/v1/pick", { method: "POST", body: r.requestBuffer });
        const to = told.headers.get("x-gateway-destination-endpoint");
        r.variables.pod = to ? to.split(",")[0] : "";
    } catch (e) {
        r.variables.pod = "";
    }
    r.internalRedirect(r.variables.pod ? "@picked" : "@balanced");
}

export default { pick };
