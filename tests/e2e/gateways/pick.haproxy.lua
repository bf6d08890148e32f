-- By hand, and not by core.httpclient: that one tries for seconds to reach an index that is not there.
local index = core.tokenize(os.getenv("KVINDEXER"), ":")
local token = os.getenv("KVINDEXER_TOKEN") or "" -- of use beside a tokens file
local question = "POST /v1/pick HTTP/1.0\r\nauthorization: Bearer " .. token
  .. "\r\nx-kvindexer-truncated: %s\r\ncontent-length: %d\r\n\r\n%s"

core.register_action("pick", { "http-req" }, function(txn)
  local body, socket = txn.f:req_body() or "", core.tcp()
  socket:settimeout(0.25)
  if socket:connect(index[1], tonumber(index[2])) then
    socket:send(question:format(tostring(#body < txn.f:req_body_size()), #body, body))
    local told = socket:receive("*a") or ""
    local pod = told:match("^HTTP/1.%d 200 ") and told:match("\r\n\r\n(%S+) ")
    if pod then txn:set_var("txn.pod", pod) end
  end
  socket:close()
end)
