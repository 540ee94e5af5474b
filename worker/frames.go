package worker

import "github.com/go-json-experiment/json/jsontext"

// The frames of the life cycle as they leave. Golden files hold each of them.

// initializeFrame is the host's first frame. It carries base fields of the
// major only; what a later minor adds travels later.
func initializeFrame(id jsontext.Value, sessionID, image, channel string, p Profile) []byte {
	return requestFrame(id, methodInitialize, mustJSON(initializeParams{
		ProtocolVersion: MCPVersion,
		ClientInfo:      implementation{HostName, image},
		Meta:            helloMeta{hello{sessionID, channel, p.Name, p.Budgets}},
	}))
}

func initializedFrame() []byte { return noticeFrame(methodInitialized, nil) }

// welcomeFrame answers initialize.
func welcomeFrame(id jsontext.Value, mcpVersion, image string, w welcome) []byte {
	r := initializeResult{ProtocolVersion: mcpVersion, ServerInfo: implementation{WorkerName, image}, Meta: welcomeMeta{w}}
	r.Capabilities.Tools.ListChanged = true
	return resultFrame(id, mustJSON(r))
}

// receivedParams names calls whose results need not be kept.
type receivedParams struct {
	CallIDs []string `json:"callIds"`
}

func receivedFrame(ids ...string) []byte {
	return noticeFrame(methodReceived, mustJSON(receivedParams{ids}))
}

func readyFrame(p readyParams) []byte { return noticeFrame(methodReady, mustJSON(p)) }

func heartbeatFrame(id jsontext.Value, h Heartbeat) []byte {
	return requestFrame(id, methodHeartbeat, mustJSON(h))
}

func heartbeatAnswer(id jsontext.Value, r heartbeatResult) []byte {
	return resultFrame(id, mustJSON(r))
}

func releaseFrame(id jsontext.Value, p releaseParams) []byte {
	return requestFrame(id, methodRelease, mustJSON(p))
}

func reportFrame(id jsontext.Value, r Report) []byte { return resultFrame(id, mustJSON(r)) }

// listFrame asks for the tools from a cursor on; the first page has none.
func listFrame(id jsontext.Value, cursor string) []byte {
	if cursor == "" {
		return requestFrame(id, methodToolsList, nil)
	}
	return requestFrame(id, methodToolsList, mustJSON(struct {
		Cursor string `json:"cursor"`
	}{cursor}))
}
