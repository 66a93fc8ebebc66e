// Made of api/openapi.yaml by "make generate-sdk-typescript". Do not edit.

export interface paths {
    "/v1/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Is the server alive */
        get: operations["getHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/info": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What this server is */
        get: operations["getInfo"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics of the server, for Prometheus
         * @description In Prometheus' text format; any key may read them, they name no project and no sandbox. `ramet_http_requests_total`,
         *     `ramet_http_request_duration_seconds`, `ramet_http_requests_in_flight`, `ramet_sandboxes` (by state), `ramet_sandbox_creates_total` (by result),
         *     `ramet_sandbox_create_duration_seconds`, `ramet_sandbox_ends_total` (by state and cause), `ramet_operations_total` (by operation and result),
         *     `ramet_operation_duration_seconds` (by operation), `ramet_promised_memory_bytes` and
         *     `…_disk_bytes` with their `…_limit_bytes`, `ramet_disk_full`, `ramet_info`, and those of the Go runtime and the process.
         */
        get: operations["getServerMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What sandboxes and templates cost the host
         * @description The caller's sandboxes that have neither stopped nor failed, with what their machines really take, and the templates of the server.
         */
        get: operations["getUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/backup": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Back up the records of the server
         * @description For an admin's key. Sends a gzipped tar with a consistent copy of all records and the server's own key, made while
         *     the server works. **It is a secret:** whoever has it has that key. Templates, and what is in sandboxes, are not in it. A transfer
         *     that fails midway breaks the connection off. `ramet restore` puts it into a data directory.
         */
        get: operations["getBackup"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/capacity": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the host keeps ready, and how creates were served
         * @description Counters begin with the server.
         */
        get: operations["getCapacity"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List sandboxes, newest first
         * @description All filters that are given must match. A page goes on from the last sandbox of the page before, by its age: sandboxes that
         *     are made or end between two pages neither repeat others nor hide them. New ones are not on later pages.
         *     Metadata are the labels of a sandbox; there are no others.
         */
        get: operations["listSandboxes"];
        put?: never;
        /**
         * Create a sandbox
         * @description Answers when the sandbox is booted and takes calls. The steps of the start are in `timings_ms` and in
         *     the header `Server-Timing`. When the client goes away during the call the create is undone as a whole, unless
         *     it had ended just before; a sandbox is never left half made.
         *     A body is optional; `{}` and no body make a sandbox of the default template. A template of this server's own that is not built yet begins to be
         *     built, and the answer is 503 `template_building` with `Retry-After`; 503 `template_build_failed` when that has failed.
         */
        post: operations["createSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /**
         * Get a sandbox
         * @description Stopped sandboxes can be read for a while after their end.
         */
        get: operations["getSandbox"];
        put?: never;
        post?: never;
        /**
         * Delete a sandbox
         * @description Answers when everything that the sandbox used is free again. A sandbox in any state can be deleted, also one
         *     that is still being created. Deleting one again answers 204 as long as its record is kept; an id that never
         *     was (or is another project's) answers 404.
         */
        delete: operations["deleteSandbox"];
        options?: never;
        head?: never;
        /** Change the settings of a sandbox */
        patch: operations["updateSandbox"];
        trace?: never;
    };
    "/v1/sandboxes/{id}/egress": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        /**
         * Set what a sandbox may reach
         * @description Replaces `egress` and the whole `egress_policy`, which therefore both have to be there: `{}` is a policy without rules. It is in force
         *     when the answer comes: connections that are open and not allowed any more have been cut. It stays over a restart of
         *     the server. Repeating it changes nothing. The sandbox has to be running or hibernated, otherwise it is a 409.
         */
        put: operations["setEgress"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fork a running sandbox
         * @description Makes `n` sandboxes with the memory, processes, files and settings that this one has at one instant; each has its own id,
         *     identity, clock and randomness, and takes calls when this answers. The parent stands still for milliseconds and is otherwise
         *     untouched. All children are made or none.
         */
        post: operations["forkSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/merge_into/{winner}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id of the sandbox whose machine `id` shall have. */
                winner: string;
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a sandbox what another one is
         * @description Afterwards `id` has the machine of `winner`, with its memory, processes and files, and the id `winner` is retired (404 for calls,
         *     its record says `merged_into`). What ran in the machine of `id` has ended; runs of the winner go on under `id`. Checkpoints of both
         *     belong to `id`. Settings and metadata are those of `id`. It happens as a whole or not at all. A sandbox cannot be merged into itself (400).
         */
        post: operations["mergeSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/hibernate": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Hibernate a sandbox
         * @description Saves its memory and disk, and ends its machine: it uses no memory and no CPU until it wakes. Processes, the Python interpreter
         *     and open files are there again then. Streams of runs end with `sandbox_hibernated`, and what they followed goes on after the wake.
         *     If it cannot be saved it goes on running. One that is hibernated already is answered at once.
         */
        post: operations["hibernateSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/wake": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Wake a hibernated sandbox
         * @description Answers when it takes calls. One that runs is answered at once. When the saved memory does not fit this host any more (another QEMU,
         *     CPU or machine shape) it boots from its saved disk, and `boot_note` says why.
         */
        post: operations["wakeSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/checkpoints": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /**
         * List the checkpoints of a sandbox, newest first
         * @description Also of one that has ended.
         */
        get: operations["listSandboxCheckpoints"];
        put?: never;
        /**
         * Make a checkpoint of a running sandbox
         * @description Answers when it is whole and on the disk; the sandbox goes on meanwhile, after a pause of milliseconds. A sandbox can have 10 full
         *     and 100 disk-only ones; one more is refused with 429 (`too_many_checkpoints`), unless `delete_oldest` is set.
         */
        post: operations["createCheckpoint"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take a sandbox back to one of its checkpoints
         * @description Its memory and files become those of the checkpoint; what was there since is gone, and what ran ends. Id, settings and
         *     metadata stay. The checkpoint is verified before anything is given up: if it cannot be restored the sandbox goes on as it was.
         */
        post: operations["restoreSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/diff": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Which files differ between two sandboxes */
        post: operations["diffSandboxes"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/checkpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List checkpoints, newest first */
        get: operations["listCheckpoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/checkpoints/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `ckp_` and 32 hexadecimal digits. */
                id: components["parameters"]["CheckpointID"];
            };
            cookie?: never;
        };
        /** Get a checkpoint */
        get: operations["getCheckpoint"];
        put?: never;
        post?: never;
        /**
         * Delete a checkpoint
         * @description What was started from it goes on.
         */
        delete: operations["deleteCheckpoint"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/spaces": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Spaces, newest first */
        get: operations["listSpaces"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/spaces/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `spc_` and 32 hexadecimal digits. */
                id: components["parameters"]["SpaceID"];
            };
            cookie?: never;
        };
        /** Get a Space */
        get: operations["getSpace"];
        put?: never;
        post?: never;
        /** Delete a Space */
        delete: operations["deleteSpace"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/spaces/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `spc_` and 32 hexadecimal digits. */
                id: components["parameters"]["SpaceID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume a Space
         * @description Makes a new sandbox, with an id of its own, in which the processes of the frozen one go on. The Space is consumed: it is gone when
         *     this has answered, and still there when it has failed.
         */
        post: operations["resumeSpace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/lineage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Which sandboxes and checkpoints come of which */
        get: operations["getLineage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/gc": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Remove what no record owns
         * @description For an admin's key. Removes snapshots and what is left of machines that belong to nothing any more. The server does it by itself too.
         */
        post: operations["collectGarbage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run code
         * @description Runs `code` and streams what it does as `Event` lines, the last of which is `exit`.
         *
         *     `python` runs in the sandbox's one interpreter: variables, imports and open files carry over from call to
         *     call, and calls queue. `bash` is a fresh process per call.
         *
         *     Four things can end a run early, and they are different:
         *
         *     * **timeout**: after `timeout_s` the code is interrupted (SIGINT), and killed if it does not end.
         *       `exit` has the reason `timeout`.
         *     * **interrupt**: `POST …/processes/{process}/signal` with `SIGINT` and the run's id (header `X-Run-Id` of this answer).
         *       For Python it is a KeyboardInterrupt and the interpreter keeps its state. `exit` has the reason `interrupted`.
         *     * **kill**: the same with `SIGKILL`. For Python the interpreter is replaced and its state is lost; `exit`
         *       has the reason `interpreter_died` or `signaled`.
         *     * **disconnect**: when the client of this call goes away the run is interrupted (SIGINT) and, if it still
         *       runs 5 seconds later, killed. Programs that shall outlive their client are started with `detach`.
         *
         *     The uncaught exception of Python code is an `error` event before `exit`; its traceback is also on stderr.
         */
        post: operations["exec"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/processes": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /**
         * List runs and programs
         * @description Everything that runs by exec or as a program, and detached programs that have ended.
         */
        get: operations["listProcesses"];
        put?: never;
        /**
         * Start a program
         * @description Starts a program and streams its events as `chunks` (see `Event`): first `started` with the id of the process, last `exit`.
         *     Without `detach` the program ends with this call: when the client goes away it gets SIGINT and, 5 seconds later,
         *     SIGKILL. With `detach` it runs on, stays listed after its end, and can be followed again by `…/stream`.
         *     A program that cannot be started is an `exit` with the reason `start_failed` and a message.
         *
         *     With `pty` it runs on a terminal of that size and leads a session of its own. What the terminal shows comes as `stdout`; `…/stdin` is what is
         *     typed, so that a Ctrl-C (`\x03`) interrupts the foreground job; `…/resize` changes the size. `TERM` is `xterm-256color` unless the
         *     environment has one. When the client goes away, or at `timeout_s`, the terminal is hung up: SIGHUP instead of SIGINT.
         */
        post: operations["startProcess"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/processes/{process}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        /**
         * Follow a process again
         * @description Replays its events from `from_seq` on and follows it. Ending this call does nothing to the process.
         */
        get: operations["streamProcess"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/processes/{process}/stdin": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Write to a program's standard input
         * @description The raw body, of any length, is passed on as it arrives. The program must have been started with `stdin` or `pty`.
         */
        post: operations["writeStdin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/processes/{process}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a signal
         * @description It goes to the whole process group; SIGHUP and SIGKILL go to the foreground job of a terminal as well. For a Python run only SIGINT (interrupt the code) and SIGKILL (replace the interpreter) have a meaning.
         */
        post: operations["signalProcess"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/processes/{process}/resize": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Set the size of a process's terminal
         * @description Its foreground processes get SIGWINCH when that is another one. A process without a terminal, or one that has ended, is a 409.
         */
        post: operations["resizeProcess"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/contexts": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** List interpreters */
        get: operations["listContexts"];
        put?: never;
        /**
         * Start an interpreter
         * @description A context is an interpreter of Python, JavaScript or bash with a state, a directory and a queue of its own, beside the sandbox's
         *     first one, whose id is `default`. Code runs in it by `context` of exec. The first JavaScript without a context makes one with the id `javascript`.
         *     It answers when the interpreter is ready. A sandbox can have 32 contexts (429 `too_many_contexts`).
         */
        post: operations["createContext"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/contexts/{context}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                context: components["parameters"]["ContextID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * End an interpreter
         * @description The call that it runs, and those that wait for it, end. The context `default` cannot be removed.
         */
        delete: operations["deleteContext"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/contexts/{context}/restart": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                context: components["parameters"]["ContextID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Replace an interpreter by a new one
         * @description Its state is lost, and the call that it runs ends. Its id, language and directory stay, and calls that wait run in the new one.
         */
        post: operations["restartContext"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /**
         * Read a file
         * @description Streams it. `Range` with one range is honoured. HEAD answers the size only.
         */
        get: operations["readFile"];
        /**
         * Write a file
         * @description The raw body, of any size, becomes the file. The file is replaced as a whole at the end or not at all:
         *     an upload that breaks off leaves what was there.
         */
        put: operations["writeFile"];
        post?: never;
        /** Remove a file or directory */
        delete: operations["removeFile"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/list": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** List a directory */
        get: operations["listFiles"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/stat": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** What a path is */
        get: operations["statFile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/watch": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /**
         * Follow what changes in a directory
         * @description Streams `FileChange` lines until the client goes away. The first is `started`: whatever changes after it is told. With `recursive`
         *     that includes directories that are made, or moved there, later, and what was put into them before anybody could look.
         *     What the user may not read is not told. A file that is uploaded is told when it is whole, as `create` and `write`. A program that makes more changes than can be passed on causes an `overflow`: list
         *     the directory again then. At most 8192 directories are watched (429, `guest_exhausted`). The sandbox is in use while this call is open.
         */
        get: operations["watchFiles"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/mkdir": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a directory */
        post: operations["makeDirectory"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/move": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Move or rename */
        post: operations["moveFile"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files/attributes": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Change mode, owner or group */
        post: operations["setFileAttributes"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/archive": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** Read a file or directory as a tar */
        get: operations["readArchive"];
        /**
         * Unpack a tar into a directory
         * @description The directory is made when it is missing. Unpacking is not atomic.
         */
        put: operations["writeArchive"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/ports": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** TCP ports that something listens on */
        get: operations["listPorts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/ports/{port}/connect": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description 1 to 65535. */
                port: number;
            };
            cookie?: never;
        };
        /**
         * Connect to a TCP port
         * @description A WebSocket (HTTP/1.1) whose binary messages are the bytes of one TCP connection, cut anywhere. It reaches services that are
         *     bound to the sandbox's loopback address too. An *empty* binary message says that its sender sends no more, and that
         *     it still reads (half-close). When both sides have said so the server closes with 1000. A client that closes with 1000 or 1001 ends the
         *     connection well; anything else resets it. The server closes with 1011 when the connection broke, and the reason is `connection_reset` or
         *     the code of an error. The sandbox is in use while the WebSocket is open. Where nothing listens the answer is 409 (`port_closed`).
         */
        get: operations["connectPort"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** What a sandbox uses */
        get: operations["getMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/console": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        /** The last lines of the guest's serial console */
        get: operations["getConsole"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What happens to sandboxes, as server-sent events
         * @description Sends the events of the caller's project, the oldest first, and then those that happen, until the client goes away. Each is
         *     `id: <number>`, `event: <type>` and `data: <SandboxEvent as JSON>`. While nothing happens a comment is sent every 10 seconds.
         *     To go on after a break send the last id seen as `Last-Event-ID`, as browsers do by themselves, or as `since`: nothing is
         *     lost in between, and nothing comes twice. When events after that id were forgotten already, an event `gap` comes first; events are
         *     kept for 30 days, and a million of them.
         */
        get: operations["streamEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/templates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List templates */
        get: operations["listTemplates"];
        put?: never;
        /**
         * Build a template
         * @description Streams `BuildEvent` lines; the last one is `done` or `error`. A template whose inputs have not changed is not built again.
         *     The build goes on when the client goes away; calling again joins it.
         */
        post: operations["buildTemplate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/templates/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a template
         * @description Refused with 409 while sandboxes stand on it.
         */
        delete: operations["deleteTemplate"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List API keys */
        get: operations["listKeys"];
        put?: never;
        /**
         * Create an API key
         * @description The answer holds the secret. It is stored nowhere and never shown again. With an admin's key `project` may name any
         *     project, which is made when it is new.
         */
        post: operations["createKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke an API key
         * @description Calls that begin after the answer are refused, and calls of the key that are under way end, streams included.
         *     An admin's key revokes keys of any project.
         */
        delete: operations["deleteKey"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/projects": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List projects with their limits and what they use
         * @description An admin's key sees all, any other its own.
         */
        get: operations["listProjects"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/projects/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        /** Get a project */
        get: operations["getProject"];
        /**
         * Make a project or change its quota and retention
         * @description For an admin's key. A project that is new is made. Fields that are absent leave what was there. What is promised already stays,
         *     also when it is more than the new quota.
         */
        put: operations["setProject"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Error: {
            /** @description One sentence for a person. */
            error: string;
            /** @description A stable word for programs. */
            code: string;
            request_id: string;
        };
        Info: {
            version: string;
            /** @description The kind of machines this server starts, `qemu` for example. */
            driver: string;
            /** @description What stands between a guest and the host: `kvm`, `gvisor` or `emulated`. */
            isolation: string;
            region: string;
            node: string;
            pid: number;
            /** Format: date-time */
            started_at: string;
            /** Format: double */
            uptime_s: number;
            /** @description Whether calls need a key. */
            auth: boolean;
            /** @description Where guest ports are reached: `<port>-<id>.<preview_domain>`, with the id as `i<32 hex>`. It has a port in it when that is not the one of the scheme. */
            preview_domain?: string;
        };
        Capacity: {
            /** @description Machines that run for sandboxes. Those of the pool are not among them. */
            machines: number;
            /** @description Processes of machines that were started ahead of forks and wakes and wait. */
            waiting: number;
            /** @description How many are kept (the setting `waiting_machines`). Each takes some 30 MB. */
            waiting_size: number;
            /**
             * Format: int64
             * @description Creates of a template or shape that no pool is kept for.
             */
            unpooled: number;
            pool: components["schemas"]["PoolCounters"];
            pools: components["schemas"]["Pool"][];
        };
        PoolCounters: {
            /** @description How many warm machines are kept. */
            size: number;
            /** @description How many are ready now. */
            ready: number;
            /** @description How many are being made now. */
            warming: number;
            /**
             * Format: int64
             * @description Creates that took a warm machine.
             */
            hits: number;
            /**
             * Format: int64
             * @description Creates that found none and had to boot a machine.
             */
            misses: number;
            /**
             * Format: double
             * @description Hits among hits and misses, 0 to 1.
             */
            hit_rate: number;
            /**
             * Format: int64
             * @description Warm machines that were thrown away: dead, made from something that was replaced, or because memory was short.
             */
            discarded: number;
            /** Format: double */
            hand_off_ms_mean: number;
            /**
             * Format: double
             * @description Of the boots for the misses.
             */
            on_demand_boot_ms_mean: number;
            /**
             * Format: double
             * @description Of making one machine for the pool.
             */
            refill_ms_mean: number;
            /** Format: double */
            refill_ms_last: number;
        };
        Pool: components["schemas"]["PoolCounters"] & {
            template: string;
            vcpus: number;
            memory_mb: number;
            disk_mb: number;
        };
        SandboxCreate: {
            /** @description Default `default`. */
            template?: string;
            /** @description MiB of memory, 512 to 16384 in steps of 128. Default 1024. */
            memory_mb?: number;
            /** @description 1, 2, 4 or 8. Default 2. */
            vcpus?: number;
            /** @description MiB of disk, 4096 to 65536. Default 4096. */
            disk_mb?: number;
            /** @description Whether the sandbox reaches the internet. Default true. */
            egress?: boolean;
            egress_policy?: components["schemas"]["EgressPolicy"];
            /** @description Environment of everything that runs in the sandbox. It is not shown again, since it may hold secrets. */
            env?: {
                [key: string]: string;
            };
            /** @description Anything the caller wants to find the sandbox by. */
            metadata?: {
                [key: string]: string;
            };
            /** @description Podflare's name of `memory_mb`. Rounded up to a step of 128. */
            ram_mib?: number;
            /** @description Podflare's name of the disk size, in GiB. */
            rootfs_gb?: number;
            /**
             * @description The id of a checkpoint to start from, instead of a template. The new sandbox has the checkpoint's template and shape, which cannot be
             *     changed, and those of its settings that this request does not give. It has no network when either says so, and is persistent when either says so.
             */
            checkpoint?: string;
            /** @description Only with `checkpoint`: whether the generators of `random` and numpy get new seeds. Default true. The kernel's randomness is new in any case. */
            reseed?: boolean;
            /** @description Seconds without a call after which the sandbox hibernates (a persistent one becomes a Space), 0 to a year. 0 is never, absent the server's setting (300). A call in flight, a stream included, is a call: a long silent one is not idleness. Reading the sandbox, its metrics, console and events is none, and neither is what runs detached in it. */
            idle_timeout_s?: number;
            /** @description Seconds after its create at which the sandbox is stopped for good, hibernated or not, 0 to a year. 0 or absent is never. */
            max_lifetime_s?: number;
            /** @description Podflare's name of `max_lifetime_s`. */
            timeout_seconds?: number;
            /** @description Podflare's `idle_timeout_s`. With it the sandbox is deleted when that is over, instead of hibernating, unless it is persistent. */
            idle_timeout_seconds?: number;
            /** @description Whether it becomes a Space when its idle timeout is over, instead of hibernating. Default false. */
            persistent?: boolean;
            /** @description What has to stand between the sandbox and the host: `kvm`, `gvisor` or `emulated`. Where the server gives another one, a stronger one too, or the checkpoint is of another one, the answer is 400 `isolation_unavailable`. Absent is no matter what; the answer says which it is. */
            isolation?: string;
            /** @description Seconds for which it runs until its deadline, which updates move and calls do not. It counts from the moment at which the sandbox runs, and anew from each wake. 0 or absent is none. */
            ends_in_s?: number;
            /** @description What becomes of it at its deadline: `delete` (default), `hibernate`, or `hibernate_disk` (without its memory: the wake is a boot). */
            at_end?: string;
        };
        /**
         * @description What of the outside a sandbox may reach; without rules everything but the addresses that are always closed (private ranges, the host). Rules are
         *     `example.com` (that name), `*.example.com` (all names below it, not itself), `203.0.113.7` or `203.0.113.0/24`, each for all ports or with
         *     `:443` or `:8000-8010` behind it (IPv6 in brackets then: `[2001:db8::1]:443`). Each list has at most 1000 rules, together at most 64 KiB. Rules are answered in the form in which
         *     events name them: lower case, names in their ASCII form. `docs/egress.md` says how they are enforced.
         */
        EgressPolicy: {
            /** @description With `deny_first`, and when it is not empty: nothing else may be reached. With `allow_first`: exceptions to `deny`. */
            allow?: string[];
            /** @description What may not be reached. */
            deny?: string[];
            /**
             * @description `deny_first` (default): what `deny` names is denied, then what `allow` does not name, if it has rules. `allow_first`: what
             *     `allow` names is allowed, then what `deny` names is denied, and the rest is allowed.
             */
            order?: string;
        };
        EgressSet: {
            /** @description `false` closes the network, whatever the policy says, which is kept. */
            egress: boolean;
            egress_policy: components["schemas"]["EgressPolicy"];
        };
        /** @description What is absent stays as it was. */
        SandboxUpdate: {
            /** @description 0 is never. */
            idle_timeout_s?: number;
            /** @description 0 is never. It counts from the create: one that is over already stops the sandbox at once. */
            max_lifetime_s?: number;
            /** @description Podflare's name of `max_lifetime_s`. */
            timeout_seconds?: number;
            /** @description Podflare's name of `idle_timeout_s`. */
            idle_timeout_seconds?: number;
            /** @description Moves the deadline to so many seconds from now; 0 takes it away. While the sandbox hibernates it is the time from its wake on. */
            ends_in_s?: number;
            /** @description `delete`, `hibernate` or `hibernate_disk`. */
            at_end?: string;
            /** @description Merged into what is there. A value of null removes its key. */
            metadata?: {
                [key: string]: string | null;
            };
        };
        Sandbox: {
            id: string;
            /** @description Podflare's word: `ready` while the sandbox runs, otherwise the same as `status`. */
            state: string;
            /** @description `creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped` or `failed`. */
            status: string;
            /** @description One sentence, with the status `failed`, and with `stopped` when the server stopped it: its maximum lifetime was over for example. */
            fail_reason?: string;
            /**
             * Format: date-time
             * @description Set when the guest did not answer a call, although its machine runs. The sandbox stays `running`: calls are still
             *     tried, and the first one that is answered clears the mark.
             */
            unresponsive_since?: string;
            template: string;
            template_hash: string;
            memory_mb: number;
            vcpus: number;
            disk_mb: number;
            egress: boolean;
            egress_policy: components["schemas"]["EgressPolicy"];
            metadata: {
                [key: string]: string;
            };
            /** @description What stands between it and the host: `kvm`, `gvisor` or `emulated`. */
            isolation: string;
            region: string;
            node: string;
            /** @description 0 is never. */
            idle_timeout_s: number;
            /** @description 0 is never. */
            max_lifetime_s: number;
            /** @description It becomes a Space when its idle timeout is over, instead of hibernating. */
            persistent: boolean;
            /** @description What becomes of it when its idle timeout is over: `hibernate`, `space` (persistent ones) or `delete`. */
            on_idle: string;
            /** @description Where this server can be reached directly, by its setting `public_url`; absent when that is not set. */
            endpoint?: string;
            /** @description How it came to be: `create`, `fork`, `checkpoint` or `space`. */
            origin: string;
            /** @description The sandbox that it was forked from, or whose checkpoint or Space it was made of. */
            parent?: string;
            /** @description The checkpoint that it was made of. */
            checkpoint?: string;
            /** @description The Space that it was made of. */
            space?: string;
            /** @description The sandbox that took over its machine, which ended it. */
            merged_into?: string;
            /** @description One sentence: why its last start kept its disk only and not its memory. Absent when it kept both. */
            boot_note?: string;
            /**
             * Format: date-time
             * @description Its deadline, which updates move. Absent: none, or it does not run.
             */
            ends_at?: string;
            /** @description What becomes of it at its deadline; absent without one. */
            at_end?: string;
            /**
             * Format: date-time
             * @description When it ends by itself if nothing changes: at the end of its maximum lifetime, at a deadline that deletes it, or of its retention while it is hibernated.
             */
            expires_at?: string;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            updated_at: string;
            /**
             * @description Only in answers of calls that started, saved or replaced its machine. Milliseconds of each step, and `total`. A create that took
             *     a machine of the warm pool has the step `claim`; one that booted a machine has `start_vmm`.
             */
            timings_ms?: {
                [key: string]: number;
            };
        };
        ForkRequest: {
            /** @description How many children, 1 to 32. Default 1. */
            n?: number;
            /** @description Whether the generators of `random` and numpy get new seeds in each child. Default true; with false all children draw the parent's next numbers. The kernel's randomness is new in any case. */
            reseed?: boolean;
        };
        Forked: {
            /** @description The ids of the children. */
            children: string[];
            /** @description The children, in the same order. */
            sandboxes: components["schemas"]["Sandbox"][];
            /**
             * Format: double
             * @description How long the parent stood still.
             */
            paused_ms: number;
            /**
             * Format: int64
             * @description Memory that was copied.
             */
            dirty_bytes: number;
            /** @description Milliseconds of each step, and `total`. */
            timings_ms: {
                [key: string]: number;
            };
        };
        CheckpointCreate: {
            /** @description Unique among the checkpoints of the sandbox: up to 64 letters, digits, dots, dashes and underscores. Default: one is made up. */
            name?: string;
            /** @description `full` (default): memory, processes and disk. `disk`: the disk only; what starts from it boots. */
            kind?: string;
            /** @description When the sandbox has as many of the kind as it may have (10 full, 100 disk), delete the oldest instead of refusing. */
            delete_oldest?: boolean;
        };
        RestoreRequest: {
            /** @description The id of one of its checkpoints. */
            checkpoint: string;
        };
        /** @description What is absent is as it was in the sandbox that became the Space. */
        SpaceResume: {
            /** @description 0 is never. */
            idle_timeout_s?: number;
            /** @description 0 is never. It counts from the resume. */
            max_lifetime_s?: number;
            /** @description Podflare's name of `max_lifetime_s`. */
            timeout_seconds?: number;
            /** @description Podflare's `idle_timeout_s`. With it the sandbox is deleted when that is over, instead of hibernating, unless it is persistent. */
            idle_timeout_seconds?: number;
            /** @description Whether it becomes a Space again when its idle timeout is over. */
            persistent?: boolean;
            /** @description Whether it reaches the internet. */
            egress?: boolean;
        };
        /** @description What checkpoints and Spaces have in common. The settings are those that the sandbox had then; what is started from it has them too. */
        Snapshot: {
            id: string;
            /** @description The sandbox that it was made of. It may be gone. */
            sandbox: string;
            /** @description `making`, `ready` or `deleting`. Only ready ones can be used. */
            status: string;
            template: string;
            template_hash: string;
            memory_mb: number;
            vcpus: number;
            disk_mb: number;
            egress: boolean;
            metadata: {
                [key: string]: string;
            };
            /** @description 0 is never. */
            idle_timeout_s: number;
            /** @description 0 is never. */
            max_lifetime_s: number;
            persistent: boolean;
            /** @description What stands between it and the host: `kvm`, `gvisor` or `emulated`. */
            isolation: string;
            region: string;
            node: string;
            /**
             * Format: int64
             * @description On disk. Layers that it shares with the machine that it was made of count fully.
             */
            size_bytes: number;
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description When its retention is over and it is deleted. Absent: never.
             */
            expires_at?: string;
        };
        Checkpoint: components["schemas"]["Snapshot"] & {
            name: string;
            /** @description `full` or `disk`. */
            kind: string;
            /**
             * Format: double
             * @description Only in the answer to its create: how long the sandbox stood still.
             */
            paused_ms?: number;
            /**
             * Format: int64
             * @description Only in the answer to its create: memory that was copied.
             */
            dirty_bytes?: number;
            /** @description Only in the answer to its create. Milliseconds of each step, and `total`. */
            timings_ms?: {
                [key: string]: number;
            };
        };
        CheckpointList: {
            checkpoints: components["schemas"]["Checkpoint"][];
            /** @description Absent on the last page. */
            next_cursor?: string;
        };
        Space: components["schemas"]["Snapshot"] & {
            /** @description Empty when it has none. */
            name: string;
        };
        SpaceList: {
            spaces: components["schemas"]["Space"][];
            /** @description Absent on the last page. */
            next_cursor?: string;
        };
        Lineage: {
            /** @description `parent`, `checkpoint`, `space` and `merged_into` say how they belong together. Stopped ones are among them while their records are kept. */
            sandboxes: components["schemas"]["Sandbox"][];
            checkpoints: components["schemas"]["Checkpoint"][];
        };
        DiffRequest: {
            /** @description The id of the sandbox to compare with. */
            other: string;
            /** @description Absolute paths, of files or directories with all that is in them, at most 100. Default `/root` and `/tmp`. */
            paths?: string[];
        };
        /** @description Paths of regular files, sorted. `added` are only in the other sandbox, `removed` only in this one, `modified` differ. */
        Diff: {
            added: string[];
            removed: string[];
            modified: string[];
            /** @description There were more files than can be compared. */
            truncated: boolean;
        };
        GCRequest: {
            /** @description Only say what would be removed. */
            dry_run?: boolean;
        };
        GCReport: {
            dry_run: boolean;
            snapshots: components["schemas"]["Garbage"][];
            /** @description What is left of machines. */
            instances: components["schemas"]["Garbage"][];
            /**
             * Format: int64
             * @description Of all of them together.
             */
            bytes: number;
        };
        Garbage: {
            /** @description The name of its directory. */
            id: string;
            /** Format: int64 */
            bytes: number;
            /** @description One sentence. */
            why: string;
        };
        SandboxList: {
            sandboxes: components["schemas"]["Sandbox"][];
            /** @description Absent on the last page. */
            next_cursor?: string;
        };
        ExecRequest: {
            code: string;
            /**
             * @description `python` (default), `javascript` or `bash`. Python and JavaScript run in an interpreter that keeps its state, bash without a
             *     `context` in a process of its own. `typescript` is JavaScript whose types are stripped, where the sandbox's Node.js can do that. With `context` the language is that of the context.
             */
            language?: string;
            /** @description The interpreter to run in, see `…/contexts`. */
            context?: string;
            /**
             * Format: double
             * @description Seconds after which the code is interrupted. 0 or absent means never.
             */
            timeout_s?: number;
            /** @description Environment for this call only. */
            env?: {
                [key: string]: string;
            };
            /** @description Working directory for this call only. */
            cwd?: string;
            /** @description The guest's user, for `bash` without a context. Default `root`. */
            user?: string;
            /** @description `lines` (default) or `chunks`, see `Event`. */
            format?: string;
        };
        ContextCreate: {
            /** @description `python` (default), `javascript` or `bash`. */
            language?: string;
            /** @description Where the interpreter starts. Default is the home of root. */
            cwd?: string;
        };
        Context: {
            id: string;
            language: string;
            /** @description Where its interpreters start. */
            cwd: string;
            /** @description Its interpreter has been started. */
            running: boolean;
        };
        ContextList: {
            contexts: components["schemas"]["Context"][];
        };
        ProcessStart: {
            /** @description The program and its arguments. The program is looked up in the guest's PATH. */
            argv: string[];
            /** @description Default is the user's home. */
            cwd?: string;
            env?: {
                [key: string]: string;
            };
            /** @description Default `root`. */
            user?: string;
            /**
             * Format: double
             * @description Seconds after which the program is interrupted. 0 or absent means never.
             */
            timeout_s?: number;
            /** @description Keep standard input open for `…/stdin`. Default is an empty one. */
            stdin?: boolean;
            /** @description Outlive this call. */
            detach?: boolean;
            pty?: components["schemas"]["PtySize"];
            /** @description A name of your own for it, shown in lists; at most 256 bytes. */
            tag?: string;
        };
        /** @description The size of a terminal in characters. */
        PtySize: {
            columns: number;
            rows: number;
        };
        /**
         * @description One line of a run's stream.
         *
         *     In the format `lines` every `stdout` and `stderr` event is one line of output *without its newline*, so that a client
         *     may join `data` by newlines. Output that ends without a newline is sent at the end with `eol: false`; a line
         *     longer than 8 MiB is sent in parts, all but the last with `eol: false`. `seq` counts the events of this answer from 0.
         *     What else a caller should know is on `stderr` too, as a line that begins with `[ramet]`: why there is no interpreter any
         *     more or none was started, that output was dropped, that the stream broke.
         *
         *     In the format `chunks` (always used for programs) the events are those of the run's journal: text as it comes,
         *     never split inside a character. `seq` is the number in the journal, to follow the run again from `seq` + 1.
         *     An `error` has the number of the `exit` after it.
         *
         *     Bytes that are not UTF-8 are replaced in `data` (U+FFFD) and are there exactly in `data_b64`.
         */
        Event: {
            /** @description `started`, `stdout`, `stderr`, `result`, `error`, `truncated`, `exit` or `stream_error`. Skip types you do not know. */
            type: string;
            /**
             * @description `stdout`, `stderr`: text. `result`: an object from MIME type to text (base64 for binary types); `application/vnd.ramet.chart+json`
             *     describes a chart of matplotlib, `application/vnd.ramet.data+json` has the columns of a DataFrame as lists.
             *     `error`: `name: value`. `truncated`: how many bytes of output were dropped here, because they were not read in time or there was no room for them; in the format `chunks` `seq` is that of the last event that is missing.
             *     `exit`: the exit code. `started`: the process id as the guest's kernel counts. `stream_error`: a sentence.
             */
            data: unknown;
            /** Format: int64 */
            seq: number;
            /**
             * Format: int64
             * @description The host's clock, milliseconds since 1970.
             */
            ts: number;
            /** @description `false` when no newline followed. */
            eol?: boolean;
            /** @description The exact bytes when they are not UTF-8. */
            data_b64?: string;
            /** @description `started`: the id for the calls under `processes`. */
            process?: string;
            /** @description `result`: the value of the last expression, not something displayed on the way. */
            main?: boolean;
            /** @description `error`: the class of the exception. */
            name?: string;
            /** @description `error`: its text. */
            value?: string;
            /** @description `error`: the whole traceback. */
            traceback?: string;
            /**
             * @description `exit`, absent when the code or program ended by itself: `signaled`, `timeout`, `interrupted`, `interpreter_died`,
             *     `out_of_memory` or `start_failed`.
             */
            reason?: string;
            /** @description `exit`: the signal that ended it. The code is then 128 plus it. */
            signal?: number;
            /** @description `exit`: one sentence, with a reason. */
            message?: string;
            /**
             * Format: double
             * @description `exit`: how long it ran, by the guest's clock.
             */
            duration_ms?: number;
            /** @description `stream_error`: the word that an error answer would have. */
            code?: string;
        };
        SandboxEvent: {
            /**
             * Format: int64
             * @description Grows from event to event.
             */
            id: number;
            /** Format: date-time */
            time: string;
            sandbox: string;
            /**
             * @description The status that the sandbox got (`creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped`, `failed`), `create_failed`,
             *     `updated`, `egress_changed`, or what else happened: `forking` and `forked`, `merged` and `renamed`, `restoring` and `restored`, `checkpointing`, `checkpoint_made`, `checkpoint_failed`,
             *     `checkpoint_deleted`, `space_made`, `space_deleted`, `hibernate_failed`, `wake_failed`, `unresponsive`, `responsive`, `egress_denied`. Skip types you do not know.
             */
            type: string;
            /** @description The status of the sandbox after it. */
            state: string;
            /** @description One sentence. */
            reason: string;
            /**
             * @description One word: what brought it about. `create`, `delete`, `update`, `fork`, `merge`, `hibernate`, `wake`, `checkpoint`, `restore` and `resume` are calls
             *     (`wake` also any call to a hibernated sandbox); `create_failed`; `retention`: it was kept as long as its project keeps such; `idle_timeout` and `max_lifetime`; `machine_exit`:
             *     the machine ended by itself; `restart`: found when the server started; `cleanup`: an earlier attempt did not get through; `guest`;
             *     `policy`: its network refused something that the guest asked for.
             */
            cause: string;
            /**
             * @description More about it, by type. `egress_denied`: `protocol` (`tcp`, `udp` or `dns`), `host` (the name that was asked for or that
             *     decided, if there was one), `ip` and `port` (not with `dns`), `rule` (what hit: `deny example.com`, `allow list` when no rule of it matched,
             *     `egress: false`, `closed addresses`, …), `why` (a few words), and `count`: how many there were. The first
             *     one is an event at once, equal ones after it are counted and are one event together, so that a guest cannot flood the events. One without a destination counts those to many others.
             */
            data: {
                [key: string]: string;
            };
        };
        Process: {
            process: string;
            /** @description As the guest's kernel counts. */
            pid: number;
            argv?: string[];
            /** @description Set for code started by exec. */
            language?: string;
            /** @description What its starter called it. */
            tag?: string;
            /** @description It runs on a terminal. */
            pty?: boolean;
            /** @description Where it was started. */
            cwd?: string;
            /** @description As whom it was started. */
            user?: string;
            /** @description It outlives the call that started it. */
            detached?: boolean;
            /** @description The interpreter that runs it. */
            context?: string;
            running: boolean;
            /** Format: date-time */
            started_at: string;
            /** Format: int64 */
            next_seq: number;
            exit_code?: number;
            reason?: string;
            signal?: number;
            message?: string;
        };
        ProcessList: {
            processes: components["schemas"]["Process"][];
        };
        SignalRequest: {
            /** @description A name such as `SIGINT` (or `INT`), or a number. */
            signal: unknown;
        };
        Written: {
            /** Format: int64 */
            bytes: number;
        };
        FileInfo: {
            /** @description Absolute. */
            path: string;
            /** @description `file`, `directory`, `symlink` or `other`. */
            type: string;
            /** Format: int64 */
            size: number;
            /** @description Permission bits in octal, `0644`. */
            mode: string;
            uid: number;
            gid: number;
            owner: string;
            group: string;
            /** Format: date-time */
            modified_at: string;
            link_target?: string;
            /** @description Extended attributes `user.<name>` that are text. Left out when there are none. */
            attributes?: {
                [key: string]: string;
            };
        };
        FileChange: {
            /** @description `started`, `change`, `overflow` or, at the end, `stream_error`. Skip types you do not know. */
            type: string;
            /** @description `change`: relative to the directory that is watched; `.` is that itself. */
            path?: string;
            /** @description `create` (made, or moved here), `write`, `remove`, `rename` (moved away from this name) or `chmod` (mode, owner, times, attributes). */
            change?: string;
            info?: components["schemas"]["FileInfo"];
            /** @description `stream_error`: a sentence. */
            error?: string;
            /** @description `stream_error`: its stable word, such as `file_not_found` when the directory has gone. */
            code?: string;
        };
        PortList: {
            ports: number[];
        };
        FileList: {
            files: components["schemas"]["FileInfo"][];
            /** @description There are more entries than are shown. */
            truncated?: boolean;
        };
        MakeDirectory: {
            path: string;
            user?: string;
            /** @description Octal. Default `0755`. */
            mode?: string;
            /** @description Make missing parents; an existing directory is then no error. */
            parents?: boolean;
        };
        MoveFile: {
            from: string;
            to: string;
            user?: string;
            /** @description Replace what is there. */
            overwrite?: boolean;
        };
        FileAttributes: {
            path: string;
            user?: string;
            /** @description Octal. */
            mode?: string;
            /** @description A user's name or number. */
            owner?: string;
            /** @description A group's name or number. */
            group?: string;
        };
        Extracted: {
            /** Format: int64 */
            files: number;
            /** Format: int64 */
            bytes: number;
        };
        Metrics: {
            /** Format: int64 */
            memory_total_bytes: number;
            /** Format: int64 */
            memory_available_bytes: number;
            /** Format: int64 */
            disk_total_bytes: number;
            /** Format: int64 */
            disk_free_bytes: number;
            /** Format: double */
            load1: number;
            /** Format: double */
            uptime_s: number;
            /**
             * Format: int64
             * @description Since boot, all vCPUs.
             */
            cpu_busy_ms: number;
            processes: number;
            host: components["schemas"]["HostMetrics"];
        };
        HostMetrics: {
            /**
             * Format: int64
             * @description Proportional set size of the machine's process.
             */
            pss_bytes: number;
            /**
             * Format: int64
             * @description Guest pages of 4 KiB that it does not share with its snapshot.
             */
            own_pages: number;
            /**
             * Format: int64
             * @description Of its writable layer.
             */
            disk_bytes: number;
            /** Format: int64 */
            cpu_time_ms: number;
        };
        Usage: {
            sandboxes: components["schemas"]["SandboxUsage"][];
            templates: components["schemas"]["TemplateUsage"][];
        };
        SandboxUsage: {
            id: string;
            template: string;
            status: string;
            /** @description What is promised to it. */
            memory_mb: number;
            /** @description What is promised to it. */
            disk_mb: number;
            /**
             * Format: int64
             * @description Memory of its machine, with its share of what it shares with others.
             */
            pss_bytes: number;
            /**
             * Format: int64
             * @description Memory of its guest that it shares with nobody.
             */
            own_bytes: number;
            /**
             * Format: int64
             * @description What it has written.
             */
            disk_bytes: number;
        };
        TemplateUsage: {
            name: string;
            hash: string;
            /**
             * Format: int64
             * @description On disk, its snapshots included. All its sandboxes share it.
             */
            disk_bytes: number;
            /** @description How many of the caller's stand on it. */
            sandboxes: number;
        };
        Template: {
            name: string;
            /** @description Of everything it is made from. */
            hash: string;
            /** Format: int64 */
            size_bytes: number;
            /** Format: date-time */
            built_at: string;
            /** @description The vCPU counts for which a snapshot is kept. */
            goldens: number[];
            /** @description Other names that it can be asked for by. */
            aliases?: string[];
        };
        TemplateList: {
            templates: components["schemas"]["Template"][];
            /** @description Templates that are being built now, or whose last build failed. */
            builds: components["schemas"]["TemplateState"][];
        };
        TemplateState: {
            name: string;
            /** @description `building` or `failed`. */
            state: string;
            step?: string;
            detail?: string;
            /**
             * Format: double
             * @description From 0 to 1
             */
            fraction?: number;
            /** @description Why it failed. Building it again tries again. */
            error?: string;
        };
        TemplateBuild: {
            name: string;
        };
        BuildEvent: {
            /** @description `progress`, `done` or `error`. */
            type: string;
            /** @description `progress`: what is being done. */
            step?: string;
            /** @description `progress`: its last line of output. */
            detail?: string;
            /**
             * Format: double
             * @description `progress`: 0 to 1 where it is known.
             */
            fraction?: number;
            /** @description `progress`: the step has ended. */
            done?: boolean;
            template?: components["schemas"]["Template"];
            /** @description `error`: one sentence. */
            error?: string;
            /** @description `error`: a stable word. */
            code?: string;
            /** @description `error`. */
            request_id?: string;
        };
        KeyCreate: {
            /** @description To recognise the key by. */
            name?: string;
            /** @description The project that it belongs to. Default is the caller's own; only an admin's key may name another. */
            project?: string;
            /** @description The shape of the secret: `ramet` (default), or `e2b` for clients that take `e2b_<hex>` only. */
            format?: string;
        };
        Key: {
            id: string;
            name: string;
            project: string;
            /** @description The first characters of the secret. */
            prefix: string;
            /** @description Whether it may make projects, and keys of any project. */
            admin: boolean;
            /** Format: date-time */
            created_at: string;
        };
        KeyCreated: {
            id: string;
            name: string;
            project: string;
            prefix: string;
            admin: boolean;
            /** Format: date-time */
            created_at: string;
            /** @description The secret. */
            key: string;
        };
        KeyList: {
            keys: components["schemas"]["Key"][];
        };
        /** @description Each limit: a number above 0, 0 for the server's default, -1 for none. */
        ProjectSet: {
            /** @description Sandboxes at one time. */
            max_sandboxes?: number;
            /** @description MiB of memory of all of them together. */
            max_memory_mb?: number;
            /** @description MiB of disk of all of them together. */
            max_disk_mb?: number;
            /**
             * Format: int64
             * @description Seconds after which a sandbox that hibernates is deleted. Like the limits, 0 is the server's default (30 days) and -1 is never.
             */
            retain_hibernated_s?: number;
            /**
             * Format: int64
             * @description The same for Spaces (30 days).
             */
            retain_spaces_s?: number;
            /**
             * Format: int64
             * @description The same for checkpoints (90 days).
             */
            retain_checkpoints_s?: number;
        };
        Project: {
            name: string;
            /** @description The limit in force, the project's own or the server's. 0: none. */
            max_sandboxes: number;
            max_memory_mb: number;
            max_disk_mb: number;
            /** @description How many it has now that have neither stopped nor failed, nor hibernate. */
            sandboxes: number;
            /** @description What is promised to them. */
            memory_mb: number;
            /** @description What is promised to them, and to those that hibernate. */
            disk_mb: number;
            /**
             * Format: int64
             * @description The retention in force, in seconds. 0: for ever.
             */
            retain_hibernated_s: number;
            /** Format: int64 */
            retain_spaces_s: number;
            /** Format: int64 */
            retain_checkpoints_s: number;
            /** Format: date-time */
            created_at: string;
        };
        ProjectList: {
            projects: components["schemas"]["Project"][];
        };
    };
    responses: {
        /** @description The call failed. */
        Error: {
            headers: {
                "X-Request-Id"?: string;
                /** @description Seconds after which the same call may succeed, with 429 and 503. */
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"];
            };
        };
    };
    parameters: {
        /** @description Makes repetitions of the call safe, see the introduction. */
        IdempotencyKey: string;
        /** @description `sbx_` and 32 hexadecimal digits. */
        SandboxID: string;
        /** @description `ckp_` and 32 hexadecimal digits. */
        CheckpointID: string;
        /** @description `spc_` and 32 hexadecimal digits. */
        SpaceID: string;
        /** @description How many to return, 1 to 1000. */
        Limit: number;
        /** @description The `next_cursor` of the page before. */
        Cursor: string;
        ContextID: string;
        /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
        ProcessID: string;
        /** @description A path in the guest. */
        Path: string;
        /** @description The guest's user to act as. Default `root`. */
        User: string;
        /** @description Permission bits in octal, as chmod takes them. Default `0644`, or those of the file that is replaced. */
        Mode: string;
        /** @description Make missing parent directories. */
        Parents: boolean;
    };
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The word `ok`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    getInfo: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Info"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getServerMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Metrics. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getUsage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Memory and disk. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Usage"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getBackup: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The backup. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/gzip": string;
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getCapacity: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The pool of warm machines, as a whole and for each template and shape. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Capacity"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listSandboxes: {
        parameters: {
            query?: {
                /** @description How many to return, 1 to 1000. */
                limit?: number;
                /** @description The `next_cursor` of the page before. */
                cursor?: string;
                /** @description Only this status. `any` also shows stopped ones, which are left out without it. */
                status?: string;
                /** @description Only sandboxes of this template. */
                template?: string;
                /** @description Only sandboxes whose metadata has this `key=value`. May be repeated; all must match. */
                metadata?: string[];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    createSandbox: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SandboxCreate"];
            };
        };
        responses: {
            /** @description The running sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    updateSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SandboxUpdate"];
            };
        };
        responses: {
            /** @description The sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    setEgress: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EgressSet"];
            };
        };
        responses: {
            /** @description The sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    forkSandbox: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ForkRequest"];
            };
        };
        responses: {
            /** @description The children. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Forked"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    mergeSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id of the sandbox whose machine `id` shall have. */
                winner: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sandbox `id`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    hibernateSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The hibernated sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    wakeSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The running sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listSandboxCheckpoints: {
        parameters: {
            query?: {
                /** @description How many to return, 1 to 1000. */
                limit?: components["parameters"]["Limit"];
                /** @description The `next_cursor` of the page before. */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckpointList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    createCheckpoint: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["CheckpointCreate"];
            };
        };
        responses: {
            /** @description The checkpoint. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkpoint"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    restoreSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RestoreRequest"];
            };
        };
        responses: {
            /** @description The sandbox. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    diffSandboxes: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DiffRequest"];
            };
        };
        responses: {
            /** @description Added, removed and modified files. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Diff"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listCheckpoints: {
        parameters: {
            query?: {
                /** @description How many to return, 1 to 1000. */
                limit?: components["parameters"]["Limit"];
                /** @description The `next_cursor` of the page before. */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckpointList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getCheckpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `ckp_` and 32 hexadecimal digits. */
                id: components["parameters"]["CheckpointID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The checkpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkpoint"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteCheckpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `ckp_` and 32 hexadecimal digits. */
                id: components["parameters"]["CheckpointID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    listSpaces: {
        parameters: {
            query?: {
                /** @description How many to return, 1 to 1000. */
                limit?: components["parameters"]["Limit"];
                /** @description The `next_cursor` of the page before. */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SpaceList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getSpace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `spc_` and 32 hexadecimal digits. */
                id: components["parameters"]["SpaceID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The Space. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Space"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteSpace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `spc_` and 32 hexadecimal digits. */
                id: components["parameters"]["SpaceID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    resumeSpace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /** @description `spc_` and 32 hexadecimal digits. */
                id: components["parameters"]["SpaceID"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SpaceResume"];
            };
        };
        responses: {
            /** @description The running sandbox. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getLineage: {
        parameters: {
            query?: {
                /** @description Only the family of this sandbox: all that have an ancestor in common with it. Default: everything of the project. */
                sandbox?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Sandboxes and checkpoints. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Lineage"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    collectGarbage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["GCRequest"];
            };
        };
        responses: {
            /** @description What was, or would be, removed. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GCReport"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    exec: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExecRequest"];
            };
        };
        responses: {
            /** @description Event lines. */
            200: {
                headers: {
                    /** @description The id of this run, for the calls under `processes`. */
                    "X-Run-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["Event"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listProcesses: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The processes. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProcessList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    startProcess: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProcessStart"];
            };
        };
        responses: {
            /** @description Event lines. */
            200: {
                headers: {
                    /** @description The id of the process. */
                    "X-Run-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["Event"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    streamProcess: {
        parameters: {
            query?: {
                /** @description The first event wanted, the last seen `seq` plus one. 0 is the start. */
                from_seq?: number;
                /** @description Only what comes from now on, whatever `from_seq` says. Of a process that has ended that is its `exit`. */
                latest?: boolean;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Event lines. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["Event"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    writeStdin: {
        parameters: {
            query?: {
                /** @description Close standard input after the body. On a terminal its end-of-file character is typed instead, and more can follow. */
                eof?: boolean;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/octet-stream": string;
            };
        };
        responses: {
            /** @description How much was written. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Written"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    signalProcess: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignalRequest"];
            };
        };
        responses: {
            /** @description It was sent. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    resizeProcess: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description The id from the `started` event, from `X-Run-Id` or from the list. */
                process: components["parameters"]["ProcessID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PtySize"];
            };
        };
        responses: {
            /** @description It has that size. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    listContexts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The contexts, oldest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ContextList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    createContext: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ContextCreate"];
            };
        };
        responses: {
            /** @description It is ready. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Context"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteContext: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                context: components["parameters"]["ContextID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    restartContext: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                context: components["parameters"]["ContextID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is ready. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Context"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    readFile: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bytes of the file. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description The asked part of the file. */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            default: components["responses"]["Error"];
        };
    };
    writeFile: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
                /** @description Permission bits in octal, as chmod takes them. Default `0644`, or those of the file that is replaced. */
                mode?: components["parameters"]["Mode"];
                /** @description Make missing parent directories. */
                parents?: components["parameters"]["Parents"];
                /**
                 * @description `name=value`, repeatable: extended attributes (`user.<name>`) that the file gets. It has no others, also where it takes
                 *     another file's place. At most 64 with 16 KiB in all; ext4 keeps less than 4 KiB.
                 */
                attribute?: string[];
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": string;
            };
        };
        responses: {
            /** @description The file. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileInfo"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    removeFile: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
                /** @description Also remove what a directory holds. */
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    listFiles: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
                /** @description How many levels, 1 is the directory's own entries. */
                depth?: number;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entries, at most 20000. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    statFile: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
                /** @description Describe what a symbolic link points to instead of the link. */
                follow?: boolean;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entry. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileInfo"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    watchFiles: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
                /** @description Also in the directories below. */
                recursive?: boolean;
                /** @description Describe what was created, written or changed, where it still is there. */
                info?: boolean;
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Lines. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["FileChange"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    makeDirectory: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MakeDirectory"];
            };
        };
        responses: {
            /** @description The directory. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileInfo"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    moveFile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MoveFile"];
            };
        };
        responses: {
            /** @description The moved entry. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileInfo"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    setFileAttributes: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FileAttributes"];
            };
        };
        responses: {
            /** @description The entry. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileInfo"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    readArchive: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tar. A transfer that fails midway breaks the connection off. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": string;
                };
            };
            default: components["responses"]["Error"];
        };
    };
    writeArchive: {
        parameters: {
            query: {
                /** @description A path in the guest. */
                path: components["parameters"]["Path"];
                /** @description The guest's user to act as. Default `root`. */
                user?: components["parameters"]["User"];
            };
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": string;
            };
        };
        responses: {
            /** @description What was unpacked. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Extracted"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listPorts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The ports, on whatever address of the sandbox the service is bound to. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PortList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    connectPort: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
                /** @description 1 to 65535. */
                port: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The WebSocket is open and connected. */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    getMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description As the guest sees it, and what it costs the host. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Metrics"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getConsole: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `sbx_` and 32 hexadecimal digits. */
                id: components["parameters"]["SandboxID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Text written by the guest. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            default: components["responses"]["Error"];
        };
    };
    streamEvents: {
        parameters: {
            query?: {
                /** @description Only events behind this id, or later than this time (RFC 3339). Default: all that are kept. */
                since?: string;
                /** @description Only events of this sandbox. */
                sandbox?: string;
                /** @description `false` ends the answer with the last event that there is. */
                follow?: boolean;
            };
            header?: {
                /** @description Wins over `since`. */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["SandboxEvent"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    listTemplates: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The templates built on this server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TemplateList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    buildTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TemplateBuild"];
            };
        };
        responses: {
            /** @description Progress lines. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": components["schemas"]["BuildEvent"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    listKeys: {
        parameters: {
            query?: {
                /** @description The project whose keys to list, for an admin's key. Default is the caller's own. */
                project?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The keys, without their secrets. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    createKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes repetitions of the call safe, see the introduction. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["KeyCreate"];
            };
        };
        responses: {
            /** @description The key. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyCreated"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    deleteKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is revoked. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Error"];
        };
    };
    listProjects: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The projects, by name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectList"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    getProject: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The project. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
    setProject: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ProjectSet"];
            };
        };
        responses: {
            /** @description The project. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            default: components["responses"]["Error"];
        };
    };
}
