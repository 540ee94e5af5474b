// Package openai is an engine that runs the model loop itself, over any server
// that speaks the OpenAI chat completions API with streaming: Ollama, vLLM,
// llama.cpp, OpenAI.
//
// Bounds (specification N-3, W-260): every model call has max_tokens (8,192)
// and a wall limit (600 s), a turn has at most 50 model calls, an answer and a
// tool result have a size, failed calls are repeated at most twice. The
// conversation is kept in memory and trimmed to a budget before every call,
// the oldest tool results first.
//
// Servers are not trusted: a stream that never ends, that is cut off, or that
// carries damaged calls ends in an error or in a message to the model, never
// in a call that nobody meant. Nothing is read from the environment: a key is
// sent only if the options have one.
package openai
