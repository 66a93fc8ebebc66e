//go:build embedagent

package agentbin

import _ "embed"

//go:embed ramet-agent
var embedded []byte
