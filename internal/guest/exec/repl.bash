# The live shell of a context. bash.go starts it, and runs rounds of calls with what is
# defined here. Descriptor 3 is a socket to the agent: lines of shell code come from it, and
# frames of JSON go to it, as in repl.py. User code may switch on any option of the
# shell, so what is here runs without them and asks for builtins by name.
__ramet_send() {
  builtin local __ramet_head
  builtin printf -v __ramet_head '\\x%02x\\x%02x\\x%02x\\x%02x' 0 0 $((${#1} >> 8)) $((${#1} & 255))
  builtin printf "$__ramet_head%s" "$1" >&500
}

# Ends a call: its exit code, and more of the frame.
__ramet_end() {
  builtin local __ramet_n __ramet_k
  for ((__ramet_n = 0; __ramet_n < ${#__ramet_env[@]}; __ramet_n += 2)); do
    __ramet_k=${__ramet_env[__ramet_n]}
    [[ ${!__ramet_k-} == "${__ramet_env[__ramet_n + 1]}" ]] || continue # the code has changed it
    case ${__ramet_had[__ramet_n]} in
    x) builtin export "$__ramet_k=${__ramet_had[__ramet_n + 1]}" ;;
    n) builtin export -n "$__ramet_k=${__ramet_had[__ramet_n + 1]}" ;;
    *) builtin unset "$__ramet_k" ;;
    esac
  done
  if [[ -n $__ramet_back && $PWD == "$__ramet_went" ]]; then
    builtin cd -- "$__ramet_back" 2>/dev/null
    OLDPWD=$__ramet_old
  fi
  __ramet_send "{\"op\":\"done\",\"id\":$__ramet_id,\"code\":$1$2}"
  __ramet_id= __ramet_code= __ramet_env=() __ramet_had=() __ramet_back=
}

# Makes the call's own environment and directory.
__ramet_begin() {
  builtin local __ramet_n __ramet_k
  if [[ -n $__ramet_cwd ]]; then
    __ramet_back=$PWD __ramet_old=${OLDPWD-}
    if ! builtin cd -- "$__ramet_cwd" 2>/dev/null; then
      __ramet_back=
      return 1
    fi
    __ramet_went=$PWD
  fi
  for ((__ramet_n = 0; __ramet_n < ${#__ramet_env[@]}; __ramet_n += 2)); do
    __ramet_k=${__ramet_env[__ramet_n]}
    if [[ -z ${!__ramet_k+x} ]]; then
      __ramet_had+=('' '')
    elif [[ ${!__ramet_k@a} == *x* ]]; then
      __ramet_had+=(x "${!__ramet_k}")
    else
      __ramet_had+=(n "${!__ramet_k}")
    fi
    builtin export "$__ramet_k=${__ramet_env[__ramet_n + 1]}"
  done
}

# Begins a round: at the start, and after a call that has left the round before by an
# interrupt or by return.
__ramet_round() {
  builtin cd -- "$__ramet_here" 2>/dev/null || builtin cd /
  OLDPWD=$__ramet_last
  builtin shopt "$__ramet_path" sourcepath
  [[ -n $__ramet_id ]] || return 0
  if [[ -n $__ramet_kept ]]; then
    __ramet_flags=$__ramet_kept
    __ramet_end 130 ',"interrupted":true'
  else
    __ramet_end "$__ramet_status"
  fi
}

# Waits for the next call.
__ramet_next() {
  builtin local __ramet_line
  # An interrupt returns from whatever the code is in and, before the next command, from
  # what called that, down to the round and out of it.
  builtin trap '[[ -z $__ramet_busy ]] || {
    [[ -n $__ramet_kept ]] || __ramet_kept=-$-
    builtin set +e -T
    builtin trap "return 130" DEBUG
    return 130
  }' INT
  builtin trap 'RANDOM=$SRANDOM' RTMAX # the machine is a copy of another one
  while IFS= builtin read -r -u 500 __ramet_line; do
    builtin eval "$__ramet_line"
    [[ -n $__ramet_id ]] || continue
    if __ramet_begin; then
      __ramet_flags=${__ramet_flags//[!euxvfT]/} __ramet_kept=
      __ramet_busy=1
      return 0
    fi
    __ramet_end 1 ",\"start_failed\":$__ramet_problem"
  done
  exit 0 # the agent is gone
}

exec 500>&3 3>&- 4<&-
__ramet_flags= __ramet_busy= __ramet_id= __ramet_env=() __ramet_had=() __ramet_back= __ramet_went= __ramet_kept= __ramet_old=
__ramet_send "{\"op\":\"ready\",\"version\":\"${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}.${BASH_VERSINFO[2]}\"}"
