package noticetest

import "unicode"

// invisible is written without a look at the code that it tests: whatever is
// neither a letter, mark, number, punctuation, symbol nor the plain space.
func invisible(r rune) bool {
	if r == ' ' {
		return false
	}
	if unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zs, unicode.Zl, unicode.Zp) {
		return true
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}
