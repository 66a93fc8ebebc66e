// Command ramet-man writes the manual pages of ramet, one for each command:
// ramet-man DIR VERSION. It is a program of its own so that what makes manual
// pages is not part of ramet. SOURCE_DATE_EPOCH is the pages' date.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"ramet.dev/ramet/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: ramet-man DIR VERSION")
		os.Exit(2)
	}
	header := &doc.GenManHeader{Title: "RAMET", Section: "1", Source: "ramet " + os.Args[2], Manual: "Ramet"}
	if err := doc.GenManTree(cli.Commands(), header, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "ramet-man:", err)
		os.Exit(1)
	}
}
