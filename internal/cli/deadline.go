package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// deadlineFlags are --ends-in and --at-end.
type deadlineFlags struct {
	after time.Duration
	then  string
}

func (f *deadlineFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.after, "ends-in", 0, "end it after this time unless that is moved, whoever calls it; 0 is never")
	cmd.Flags().StringVar(&f.then, "at-end", "", "what --ends-in does: delete (default), hibernate or hibernate_disk (without memory)")
	nameValue(cmd.Flags(), "ends-in", "TIME")
	nameValue(cmd.Flags(), "at-end", "WHAT")
	cmd.Flags().Lookup("ends-in").DefValue = ""
	cmd.RegisterFlagCompletionFunc("ends-in", cobra.NoFileCompletions)
	cmd.RegisterFlagCompletionFunc("at-end", cobra.FixedCompletions([]string{"delete", "hibernate", "hibernate_disk"}, cobra.ShellCompDirectiveNoFileComp))
}

// values returns the flags that were given, the time in whole seconds.
func (f *deadlineFlags) values(cmd *cobra.Command) (after *int, then *string, err error) {
	if cmd.Flags().Changed("at-end") {
		then = &f.then
	}
	after, err = wholeSeconds(cmd, "ends-in", f.after)
	return after, then, err
}

// deadline says what happens to a sandbox at its deadline, or nothing without one.
func deadline(sb *v1.Sandbox) string {
	if sb.AtEnd == nil {
		return ""
	}
	what := map[string]string{"delete": "ends", "hibernate": "hibernates", "hibernate_disk": "hibernates without its memory"}[*sb.AtEnd]
	if sb.EndsAt == nil {
		return what + " some time after its wake"
	}
	return fmt.Sprintf("%s in %s", what, age(time.Now(), *sb.EndsAt))
}
