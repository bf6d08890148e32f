function envoy_on_request(handle)
  handle:headers():remove("x-gateway-destination-endpoint")
  local body = handle:body()
  local asked = { [":method"] = "POST", [":path"] = "/v1/pick", [":authority"] = "kvindexer", authorization = "Bearer " .. (os.getenv("KVINDEXER_TOKEN") or "") }
  local ok, told = pcall(handle.httpCall, handle, "kvindexer", asked, body and body:getBytes(0, body:length()), 250)
  local to = ok and told["x-gateway-destination-endpoint"]
  if to then handle:headers():replace("x-gateway-destination-endpoint", to) end
end
