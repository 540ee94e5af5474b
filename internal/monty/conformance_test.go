package monty_test

import (
	"testing"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/internal/python/pythontest"
)

func TestConformance(t *testing.T) {
	pythontest.Run(t, func(t *testing.T) python.Engine { return newEngine(t, nil) }, &pythontest.Options{
		CorpusFails: map[int]string{
			9:   "generator expressions are lists, so next() refuses them",
			96:  "no decorators of methods",
			97:  "no inheritance",
			98:  "no yield",
			101: "no callable()",
			111: "no module string",
			113: "no module hashlib",
			114: "no match statement",
			136: "no bytes() of a list",
			144: "no comparison of sets",
		},
		Deviates: map[pythontest.Behaviour]string{
			pythontest.CatchInGather: "the error ends the whole gather",
		},
	})
}
