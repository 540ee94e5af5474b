// Package noticetest helps to test what fills in the ports of notice: a store
// in memory, the contract of stores as tests, a waker whose host misbehaves,
// and a corpus of hostile texts.
package noticetest
