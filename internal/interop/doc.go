// Package interop holds tests against other people's software: servers and
// clients on the official TypeScript SDK, the Inspector, a server of the legacy
// era, and the official conformance suite. They are installed from npm by
// "make setup"; without them the tests are skipped, unless
// OSSICLE_REQUIRE_PEERS is set, as "make test" does.
package interop
