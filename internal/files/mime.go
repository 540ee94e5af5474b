package files

import (
	"path"
	"strings"
)

// mimes is a table of our own: the system's differs from machine to machine,
// and a list that changes with the machine is no contract.
var mimes = map[string]string{
	".c": "text/x-c", ".conf": "text/plain", ".css": "text/css", ".csv": "text/csv", ".env": "text/plain",
	".gif": "image/gif", ".go": "text/x-go", ".gz": "application/gzip", ".h": "text/x-c", ".htm": "text/html",
	".html": "text/html", ".ini": "text/plain", ".java": "text/x-java", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".js": "text/javascript", ".json": "application/json", ".jsonl": "application/jsonl", ".log": "text/plain",
	".lua": "text/x-lua", ".md": "text/markdown", ".mjs": "text/javascript", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".ndjson": "application/jsonl", ".pdf": "application/pdf", ".php": "text/x-php", ".png": "image/png",
	".proto": "text/plain", ".py": "text/x-python", ".rb": "text/x-ruby", ".rs": "text/x-rust", ".sh": "text/x-shellscript",
	".sql": "application/sql", ".svg": "image/svg+xml", ".tar": "application/x-tar", ".toml": "application/toml",
	".ts": "text/x-typescript", ".tsv": "text/tab-separated-values", ".tsx": "text/x-typescript", ".txt": "text/plain",
	".wasm": "application/wasm", ".wav": "audio/wav", ".webp": "image/webp", ".xml": "application/xml",
	".yaml": "application/yaml", ".yml": "application/yaml", ".zip": "application/zip",
}

// mimeByName is the media type of a file by its extension, empty if unknown.
func mimeByName(name string) string { return mimes[strings.ToLower(path.Ext(name))] }
