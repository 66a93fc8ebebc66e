// Package exec runs code and programs in the guest: in contexts, which are persistent
// interpreters of Python, JavaScript or bash with a state and a queue each, in a fresh bash
// per call, and any program. Every run is a journal
// of numbered events that any number of clients can follow, leave and follow
// again from where they were.
//
// It owns the runs, their journals, their pipes and terminals, and the interpreters (repl.py, repl.js,
// repl.bash).
// It does not own wait4(2) (package reap), the transport (package wire) or the
// freezing of user processes (package agent). It must not be asked to start
// anything while the user cgroup is frozen: the new process would be frozen
// before it has reported that it started.
//
// What is defined here, because clients depend on it:
//
//   - Ending a stream never ends a run, with one exception: a call that
//     still waits for the interpreter leaves the queue with its client.
//   - A run's time limit counts from when the code starts, not from when it
//     was queued. At the limit the process group gets SIGINT, and SIGKILL
//     2 seconds later (5 seconds for the interpreter).
//   - A signal for a call in a context goes to the interpreter's whole process group,
//     as Ctrl-C in a terminal does. Children that must survive it need a
//     session of their own.
//   - When the interpreter dies, the call that ran ends with
//     INTERPRETER_DIED or OUT_OF_MEMORY, a new interpreter starts at once,
//     and the next call's stderr begins with one line that says that the state
//     is lost.
//   - What threads and child processes of the interpreter print between two
//     calls is kept (1 MiB) and comes first in the next call.
//   - A program on a terminal leads a session of its own. What is typed, also Ctrl-C, is for
//     the foreground job, as the terminal's settings say; a signal is for the
//     program's process group, and SIGHUP and SIGKILL for the foreground job besides. At
//     its time limit the terminal is hung up: SIGHUP, and SIGKILL after that.
//     The end of input is the terminal's end-of-file character; more input can follow.
//   - A run ends when its main process has ended and its pipes are empty. What
//     background processes print afterwards is read and dropped, so that they
//     neither block nor die.
//
// Mount the handler inside Batch, and switch compression off
// (connect.WithCompression("gzip", nil, nil)): gzip costs a short call more than
// everything else together and gains nothing on a local channel.
//
// Start reading at Service, then program.go for processes, terminal.go for terminals and repl.go for the
// interpreter.
package exec
