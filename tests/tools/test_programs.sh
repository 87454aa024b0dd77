#!/usr/bin/env bash
# test_programs.sh PROGRAMS MODELS DATA HELPERS [TEST...] - the programs as a user meets them. Each function test_* is a
# test, named by what it promises; it fails when a command in it does. Results are in TAP; without TEST, of all of them.
set -u
programs=$1 models=$2 data=$3
export PATH=$programs:$4:$PATH LC_ALL=C
tiny=$models/k3-tiny-IQ1_M.gguf
single=$data/fixtures/models/k3-tiny-a-q8_0-mxfp4.gguf
shard=$data/fixtures/models/split/k3-tiny-a-q8_0-mxfp4-00002-of-00002.gguf
story='One day, Lily went to the park.'
work=$(mktemp -d)
export XDG_CACHE_HOME=$work/cache
trap 'rm -rf "$work"' EXIT

# ---- how things are checked ----

# expect STATUS COMMAND...: runs it, keeps $work/out and $work/err, and fails unless it exits with STATUS.
expect() {
    local want=$1 got
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" -eq "$want" ] || note "'$*' exits with $got, not $want: $(head -c 300 "$work/err")"
}

# As expect, for errors: nothing on standard output, one line on standard error that contains TEXT.
refuses() {
    local text=$1
    shift
    expect 1 "$@" || return
    [ ! -s "$work/out" ] || note "'$*' writes to standard output: $(head -c 300 "$work/out")" || return
    [ "$(wc -l <"$work/err")" -eq 1 ] || note "'$*' complains in several lines: $(cat "$work/err")" || return
    grep -qF -e "$text" "$work/err" || note "'$*' says: $(cat "$work/err") - which lacks: $text"
}

says() {
    grep -qF -e "$1" "$work/out" || note "output lacks '$1': $(head -c 600 "$work/out")"
}

same() {
    cmp "$1" "$2" >"$work/cmp" 2>&1 || note "$(cat "$work/cmp")"
}

is() {
    [ "$1" = "$2" ] || note "'$1' is not '$2'"
}

# The value that KEY... lead to in the JSON of FILE, which must be valid; see json_get.c.
json_is() {
    local want=$1 got
    shift
    got=$(json_get "$@" 2>&1) && [ "$got" = "$want" ] || note "json_get $*: '$got' is not '$want'"
}

quiet_err() {
    [ ! -s "$work/err" ] || note "standard error has: $(head -c 300 "$work/err")"
}

note() {
    echo "# $1"
    return 1
}

SKIP=77 # the status of a test that this machine or this build cannot run

# A test that needs a terminal asks for it first: some containers have none to give.
terminal_is_possible() {
    script -qec true "$work/typescript" >/dev/null 2>&1 </dev/null
}

# Runs a command line on a terminal of its own; what it shows is in $work/screen.
on_terminal() {
    script -qec "$1" "$work/typescript" >"$work/screen" </dev/null
}

# ---- k3run ----

test_help_and_version_go_to_standard_output() {
    local program
    for program in k3run k3tool 'k3tool plan' 'k3tool inspect' 'k3tool tokenize' 'k3tool detokenize' 'k3tool chat-render' 'k3tool chat-parse' 'k3tool logits' 'k3tool synth' 'k3tool routing' k3bench \
        'k3bench decode' 'k3bench prefill' 'k3bench policy' 'k3bench io' 'k3bench kernels' 'k3bench floats' 'k3bench gpu' 'k3bench model-of' 'k3bench plot'; do
        # shellcheck disable=SC2086
        expect 0 $program --help && says Usage && quiet_err || return
    done
    expect 0 k3run --version && says 'k3run 0.' && expect 0 k3tool --version && says 'k3tool 0.'
}

test_bench_io_compares_the_store_with_the_drive() {
    expect 0 k3bench io -m "$single" -n 1 -r 1 --json &&
        is "$(grep -cE '"(raw_bytes_per_s|store_bytes_per_s|ratio)": [0-9]' "$work/out")" 3 &&
        refuses "--io mmap has no reads to measure" k3bench io -m "$single" --io mmap
}

test_mistakes_in_options_are_told_in_one_sentence() {
    refuses "there is no option --foo" k3run --foo &&
        refuses "there is no option -Z" k3run -Z &&
        refuses "-p needs a value" k3run -p &&
        refuses "--exact takes no value" k3run --exact=1 &&
        refuses "--io: 'fast' is none of auto|uring|threads|mmap" k3run --io fast &&
        refuses "--io: '' is none of" k3run --io '' &&
        refuses "--slots: '5 %' is no amount" k3run --slots '5 %' &&
        refuses "--slots: 101 is not between" k3run --slots 101% &&
        refuses "1 slots are too few: at least" k3run -m "$tiny" --slots 1 -p x &&
        refuses "--ram: 'much' is no amount" k3run --ram much &&
        refuses "--ram: 101 is not between" k3run --ram 101% &&
        refuses "--lookahead: 'maybe' is none of auto|on|off" k3run --lookahead maybe &&
        refuses "'x' is not a whole number" k3run -p a -n x &&
        refuses "0 is not between 1" k3run -p a -n 0 &&
        refuses "0 is not between 1" k3bench gpu -r 0 &&
        refuses "is not between" k3run -p a -n 99999999999999999999 &&
        refuses "'0x' is not a whole number" k3run -p a -t 0x &&
        refuses "'-1' is not a whole number" k3run -p a -t -1 &&
        refuses "--temp: -1 is not between 0 and 100" k3run -p a --temp -1 &&
        refuses "'nan' is not a number" k3run -p a --temp nan &&
        refuses "--top-p: 1.5 is not between" k3run -p a --top-p 1.5 &&
        refuses "'hello' is unexpected" k3run hello &&
        refuses "exclude each other" k3run --raw --tools x -p a &&
        refuses "a verb is missing" k3tool &&
        refuses "there is no verb 'frob'" k3tool frob &&
        refuses "a verb is missing" k3bench
}

test_an_empty_prompt_is_refused() {
    refuses "prompt is empty" k3run -m "$tiny" -p '' &&
        refuses "prompt is empty" k3run -m "$tiny" --raw && # standard input is /dev/null
        refuses "given twice" k3run -m "$tiny" -p a -f "$tiny"
}

test_one_file_is_not_two_outputs() {
    refuses "is named for two outputs" k3run -m "$tiny" --raw -p a -n 1 --stats "$work/same" --trace "$work/same" &&
        ! test -e "$work/same"
}

test_the_benchmark_can_be_interrupted() {
    timeout --preserve-status -s INT -k 20 2 k3bench decode -m "$tiny" -n 2000 -r 90 >"$work/out" 2>"$work/err"
    is $? 130
}

test_zero_bytes_do_not_cut_input() {
    printf '[]\0x' >"$work/zero"
    refuses "holds a zero byte at 2" k3run -m "$tiny" --tools "$work/zero" -p a &&
        refuses "holds a zero byte at 2" k3tool detokenize -m "$tiny" -f "$work/zero"
}

test_files_that_are_not_there_are_named() {
    refuses "/nowhere/x.gguf" k3run -m /nowhere/x.gguf -p a &&
        refuses "/nowhere/p" k3run -m "$tiny" -f /nowhere/p &&
        refuses "/nowhere/t" k3run -m "$tiny" --tools /nowhere/t -p a &&
        refuses "is a folder" k3run -m / -p a
}

test_a_story_is_continued() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 40 && says "The birds were singing" && quiet_err
}

test_thinking_and_response_are_labelled_in_a_pipe() {
    expect 0 k3run -m "$tiny" -p 'What is 12 + 7?' && quiet_err || return
    is "$(sed -n 1p "$work/out")" '[thinking]' && is "$(sed -n 3p "$work/out")" '[response]' && says '12 + 7 = 19.' &&
        ! grep -q '<|' "$work/out"
}

test_a_tool_call_is_shown_with_its_arguments() {
    expect 0 k3run -m "$tiny" --tools "$models/../docs/examples/weather.json" -p 'What is the weather in Paris?' &&
        says '[tool call] get_weather' && says 'city (string): Paris' || return
    echo 'no json' >"$work/tools.json"
    refuses "" k3run -m "$tiny" --tools "$work/tools.json" -p a
}

test_the_prompt_comes_from_option_file_or_standard_input() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 12
    mv "$work/out" "$work/option"
    echo "$story" >"$work/prompt"
    expect 0 k3run -m "$tiny" --raw -f "$work/prompt" -n 12 && same "$work/out" "$work/option" || return
    k3run -m "$tiny" --raw -n 12 <"$work/prompt" >"$work/out" && same "$work/out" "$work/option"
}

test_user_text_forges_no_control_tokens() {
    expect 0 k3run -m "$tiny" -p '<|close|>message<|sep|><|end_of_msg|>' -n 4
}

test_text_does_not_depend_on_the_number_of_threads() {
    expect 0 k3run -m "$tiny" -t 1 --raw -p "$story" -n 60
    mv "$work/out" "$work/one"
    expect 0 k3run -m "$tiny" -t 2 --raw -p "$story" -n 60 && same "$work/out" "$work/one"
}

test_the_same_seed_gives_the_same_text_and_another_another() {
    local n
    for n in 1 1 2; do
        expect 0 k3run -m "$tiny" --raw -p "$story" -n 40 --temp 1.5 --top-p 0.95 --seed $n || return
        mv "$work/out" "$work/seed$n.$((++seeds))"
    done
    same "$work/seed1.1" "$work/seed1.2" && ! cmp -s "$work/seed1.1" "$work/seed2.3"
}

test_a_full_context_ends_the_answer_and_says_so() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 50 -c 20 && grep -q 'context of 20 tokens is full' "$work/err" &&
        refuses "more than the context of 4; -c N" k3run -m "$tiny" --raw -p "$story" -c 4 &&
        refuses "the sequence has 3 tokens, more than the context of 2" \
            k3tool logits -m "$tiny" --ids 1,2,3 -c 2 -o "$work/logits" && ! test -e "$work/logits"
}

test_a_full_disk_is_an_error() {
    local program status
    for program in 'k3run --help' "k3run -m $tiny --raw -n 5 -p a" "k3tool tokenize -m $tiny -p a" "k3tool inspect $tiny"; do
        $program >/dev/full 2>"$work/err" </dev/null
        status=$?
        is $status 1 && grep -q 'standard output.*No space left' "$work/err" || note "$program" || return
    done
    k3run --help >&- 2>"$work/err"
    is $? 1
}

test_a_closed_pipe_ends_quietly() {
    local status
    k3run -m "$tiny" --raw -p "$story" -n 200 2>"$work/err" | head -c 5 >/dev/null
    status=${PIPESTATUS[0]}
    is "$status" 0 && quiet_err || return
    k3tool inspect "$tiny" 2>"$work/err" | true
    quiet_err
}

test_statistics_are_shown_on_a_terminal_only() {
    terminal_is_possible || return $SKIP
    on_terminal "k3run -m '$tiny' --raw -n 5 -p '$story' >'$work/out'" && grep -q 'tok/s' "$work/screen" &&
        grep -q 'hit rate' "$work/screen" && grep -q 'dense weights' "$work/screen" || return
    on_terminal "k3run -m '$tiny' --raw -n 5 -p '$story' -q >'$work/out'" && ! grep -q 'tok/s' "$work/screen" || return
    on_terminal "k3run -m '$tiny' -p 'What is 12 + 7?'" && grep -q "$(printf '\033\\[2m')" "$work/screen" &&
        ! grep -qF '[thinking]' "$work/screen"
}

test_an_interrupt_stops_with_statistics() {
    terminal_is_possible || return $SKIP
    # The shell on the terminal waits for the first text, then does what Ctrl-C does.
    cat >"$work/interrupt" <<END
k3run -m '$tiny' -t 1 --raw -n 3000 --temp 1 -p '$story' >'$work/out' &
pid=\$!
while [ ! -s '$work/out' ] && kill -0 \$pid; do sleep 0.02; done
kill -INT \$pid
wait \$pid
echo "status \$?"
END
    # -i: a background job of a script that is not interactive would ignore the signal.
    on_terminal "bash -m '$work/interrupt'"
    grep -q 'status 130' "$work/screen" && grep -q 'tok/s' "$work/screen" || note "$(cat "$work/screen")"
}

# ---- what a run tells, and what it leaves ----

test_speed_settings_change_no_text() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 30
    mv "$work/out" "$work/plain"
    local settings
    for settings in '--ram 200M' '--ram 90%' '--slots 8' '--slots 42% --lookahead on' '--lookahead off --io threads' \
        "--slots 20 --warm $work/warm" "--slots 20 --warm $work/warm" "--stats $work/s --trace $work/t"; do
        # shellcheck disable=SC2086
        expect 0 k3run -m "$tiny" --raw -p "$story" -n 30 $settings && same "$work/out" "$work/plain" || return
    done
}

test_statistics_of_experts_add_up() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 20 --slots 20 --stats "$work/stats" && quiet_err || return
    json_is 20 "$work/stats" slots && json_is 9 "$work/stats" tokens prefill && json_is 19 "$work/stats" tokens decode &&
        json_is 5 "$work/stats" layers '#' && json_is 1 "$work/stats" layers 0 layer || return
    local key layer sum
    for key in requests hits misses bytes_read; do
        sum=0
        for layer in 0 1 2 3 4; do sum=$((sum + $(json_get "$work/stats" layers $layer $key))); done
        json_is $sum "$work/stats" total $key || return
    done
    for key in wait_s read_s compute_s overlap queue_depth; do json_get "$work/stats" total $key >/dev/null || return; done
    is $(($(json_get "$work/stats" total hits) + $(json_get "$work/stats" total misses))) \
        "$(json_get "$work/stats" total requests)" || return
    expect 0 k3run -m "$tiny" --raw -p a -n 2 --io mmap --stats "$work/stats" && json_is 0 "$work/stats" total bytes_read
}

test_a_timeline_is_json_also_when_interrupted() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 3 --slots 8 --trace "$work/timeline" && quiet_err || return
    json_get "$work/timeline" traceEvents 1 >/dev/null && grep -q '"name":"router"' "$work/timeline" &&
        grep -q '"name":"read"' "$work/timeline" && grep -q '"name":"logits"' "$work/timeline" || return
    is "$(grep -c '"ph":"b"' "$work/timeline")" "$(grep -c '"ph":"e"' "$work/timeline")" || return
    rm -f "$work/out"
    k3run -m "$tiny" -t 1 --raw -n 3000 --temp 1 -p "$story" --trace "$work/cut" --trace-routing "$work/cut-routing" \
        --stats "$work/cut-stats" >"$work/out" 2>"$work/err" </dev/null &
    local pid=$!
    while [ ! -s "$work/out" ] && kill -0 $pid; do sleep 0.02; done
    kill -INT $pid
    wait $pid
    is $? 130 && json_get "$work/cut" traceEvents 9 >/dev/null && json_get "$work/cut-stats" total >/dev/null &&
        json_get "$work/cut-routing" --lines layers 4 >/dev/null && is "$(find "$work" -name 'cut*' | wc -l)" 3
}

test_recorded_routing_can_be_replayed() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 20 --trace-routing "$work/routing" && quiet_err || return
    is "$(wc -l <"$work/routing")" 28 && json_is 27 "$work/routing" --lines tok &&
        json_is 5 "$work/routing" --lines layers '#' && json_is 4 "$work/routing" --lines layers 0 '#' || return
    mv "$work/routing" "$work/together"
    expect 0 k3bench policy --trace "$work/together" --slots 25% --warmup 5 && says lfru || return
    expect 0 k3bench decode -m "$tiny" -n 2 -r 1 --trace-routing "$work/routing" && is "$(wc -l <"$work/routing")" 4
}

test_outputs_that_cannot_be_written_are_told_before_the_work() {
    local option
    for option in --stats --trace --trace-routing --warm; do
        refuses "/nowhere/x" k3run -m "$tiny" -p a $option /nowhere/x &&
            refuses "" k3run -m "$tiny" -p a $option "$tiny" || return
    done
    echo nonsense >"$work/nonsense"
    refuses "no list of warm experts" k3run -m "$tiny" -p a --warm "$work/nonsense" &&
        is "$(cat "$work/nonsense")" nonsense &&
        refuses "mapped files" k3run -m "$tiny" -p a --io mmap --warm "$work/none"
}

test_the_hot_set_is_kept_for_the_next_run() {
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 20 --slots 40 --warm "$work/hot" --stats "$work/cold-stats" &&
        [ -s "$work/hot" ] || return
    expect 0 k3run -m "$tiny" --raw -p "$story" -n 1 --slots 40 --warm "$work/hot" --stats "$work/warm-stats" || return
    [ "$(json_get "$work/warm-stats" total hits)" -gt 0 ] || note "no hits" || return
    refuses "of another model" k3run -m "$single" -p a --warm "$work/hot"
}

# ---- k3tool ----

test_plan_says_what_would_do() {
    expect 0 k3tool plan -m "$tiny" --slots 42% && quiet_err && says '33 of 80, 41.2 %' && says limit || return
    expect 0 k3tool plan -m "$tiny" -c 100 --json && mv "$work/out" "$work/plan" &&
        json_is 100 "$work/plan" context && json_is 80 "$work/plan" slots && json_is 8 "$work/plan" least_slots || return
    expect 0 k3tool plan -m "$tiny" --ram 200M --json && mv "$work/out" "$work/plan" &&
        json_is $((200 << 20)) "$work/plan" limit_bytes || return
    refuses "a memory limit of 0.05 GiB is too low: 0.11 GiB are needed" k3tool plan -m "$tiny" --ram 50M &&
        refuses "is too low" k3run -m "$tiny" --ram 50M -p a && refuses "/nowhere/x" k3tool plan -m /nowhere/x
}

test_what_a_gpu_cannot_be_asked_for_is_said() {
    refuses "layers for the GPU: 5-2 ends before it begins" k3tool plan -m "$tiny" --gpu-layers 5-2 &&
        refuses "layers for the GPU: the model has 6, not 999; 'all' is everything" k3run -m "$tiny" --gpu-layers 999 -p a &&
        refuses "9.ffn is not there, the model's layers are 0-5" k3tool plan -m "$tiny" --gpu-layers 9.ffn &&
        refuses "'' is none of all, N, A-B" k3run -m "$tiny" --gpu-layers '' -p a &&
        refuses "--gpu: 'x' is not a whole number from 0 to 99" k3run -m "$tiny" --gpu x -p a &&
        refuses "--vram: '12X' is no amount" k3tool plan -m "$tiny" --vram 12X || return
    expect 0 k3tool plan -m "$tiny" --gpu 99 && says 'GPU not used: ' || return
    expect 0 k3run -m "$tiny" --gpu 99 --raw -n 2 -p "$story" && grep -q 'the CPU computes everything' "$work/err" ||
        note "which GPU is missing is not told"
}

test_whether_there_is_a_gpu_changes_no_answer() {
    local gpu
    expect 0 k3run -m "$tiny" --gpu off --raw -n 8 -p "$story" && quiet_err && mv "$work/out" "$work/cpu" || return
    for gpu in auto 0; do
        expect 0 k3run -m "$tiny" --gpu $gpu --raw -n 8 -p "$story" && same "$work/out" "$work/cpu" || return
        [ ! -s "$work/err" ] && continue
        [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q 'the CPU computes everything' "$work/err" ||
            note "--gpu $gpu: $(cat "$work/err")" || return
    done
}

test_a_model_is_divided_between_cpu_and_gpu() {
    k3tool plan -m "$tiny" --gpu 0 | grep -q '^GPU 0, emulated' || return $SKIP
    expect 0 k3tool plan -m "$tiny" --gpu 0 --gpu-layers 2 && quiet_err && says 'embedding,0-3' && says '4-5,head' &&
        says 'left over' || return
    expect 0 k3tool plan -m "$tiny" --gpu-layers 0-1,3.ffn --vram 80% --json && mv "$work/out" "$work/plan" &&
        json_is '"0-1,3.ffn"' "$work/plan" on_gpu && json_is '"embedding,2-2,3.attention,4-5,head"' "$work/plan" on_host &&
        json_is 214748364 "$work/plan" vram_limit_bytes || return
    expect 0 k3tool plan -m "$tiny" --gpu 0 --vram 20M && says 'Not all on the GPU: GPU 0 (emulated): ' || return
    refuses 'are needed for the least part of the model' k3run -m "$tiny" --vram 1K -p a &&
        refuses 'are needed for the layers asked for' k3run -m "$tiny" --vram 20M --gpu-layers all -p a || return
    expect 0 k3run -m "$tiny" --gpu off --raw -n 8 -p "$story" && mv "$work/out" "$work/cpu" || return
    expect 0 k3run -m "$tiny" --gpu-layers 3 --raw -n 8 -p "$story" && same "$work/out" "$work/cpu" || return
    expect 0 k3run -m "$tiny" --vram 20M --raw -n 8 -p "$story" && same "$work/out" "$work/cpu" &&
        grep -q 'for the whole dense model; the CPU computes embedding,' "$work/err" || note "$(cat "$work/err")"
}

test_tokenize_and_detokenize_are_inverse() {
    printf 'Hello, world!\n\n  caf\303\251 12345 \360\237\230\200 <|open|>x' >"$work/text"
    expect 0 k3tool tokenize -m "$tiny" -f "$work/text" && quiet_err || return
    is "$(wc -l <"$work/out")" 1 && mv "$work/out" "$work/ids" || return
    expect 0 k3tool detokenize -m "$tiny" -f "$work/ids" && same "$work/out" "$work/text" || return
    k3tool tokenize -m "$tiny" --special <"$work/text" | k3tool detokenize -m "$tiny" >"$work/out" &&
        same "$work/out" "$work/text" || return
    expect 0 k3tool tokenize -m "$tiny" --special -p '<|open|>' && is "$(cat "$work/out")" 1795 || return
    expect 0 k3tool tokenize -m "$tiny" -p "$story" &&
        is "$(cat "$work/out")" "986 396 11 1315 559 280 262 1150 13" || return
    expect 0 k3tool detokenize -m "$tiny" --ids 986,396 && is "$(cat "$work/out")" "One day"
}

test_conversations_are_rendered_a_line_each() {
    printf '%s\n\n%s\n' '{"messages": [{"role": "user", "content": "<|sep|>"}], "thinking": false}' \
        '{"messages": [], "effort": null, "add_generation_prompt": false}' >"$work/in"
    expect 0 k3tool chat-render -f "$work/in" && quiet_err && is "$(wc -l <"$work/out")" 2 &&
        says '["<|open|>", true], ["message", false], [" role", false], ["=\"", false], ["user", false]' &&
        says '["<|sep|>", true], ["<|sep|>", false], ["<|close|>", true]' && is "$(tail -n 1 "$work/out")" '[]' || return
    printf '{"messages": []}\n{"messages": [{}]}\n' >"$work/in"
    expect 1 k3tool chat-render -f "$work/in" && is "$(wc -l <"$work/out")" 1 &&
        is "$(cat "$work/err")" 'k3tool: line 2: message 1 has no role'
}

test_answers_are_parsed_a_line_each() {
    cat >"$work/in" <<'END'
{"pieces": [["txt", "a <|sep|>"], ["hex", "C3"], ["hex", "a9"], ["ctl", "<|close|>"], ["txt", "think"], ["ctl", "<|sep|>"]]}
{"pieces": [["ctl", "<|open|>"], ["txt", "call tool=\"f\""], ["ctl", "<|sep|>"], ["ctl", "<|open|>"], ["txt", "argument key=\"n\""], ["ctl", "<|sep|>"], ["txt", "1.50"], ["ctl", "<|end_of_msg|>"]], "thinking": false, "schema": {"f": {"n": "number"}}}
END
    expect 0 k3tool chat-parse -f "$work/in" && quiet_err &&
        is "$(head -n 1 "$work/out")" '{"reasoning_content": "a <|sep|>é", "content": "", "tool_calls": [], "finish_reason": "length"}' &&
        is "$(tail -n 1 "$work/out")" '{"reasoning_content": "", "content": "", "tool_calls": [{"name": "f", "arguments": {"n": 1.50}}], "finish_reason": "tool_calls"}' || return
    echo '{"pieces": [["ctl", "<|none|>"]]}' >"$work/in"
    refuses 'line 1: "<|none|>" is no control token' k3tool chat-parse -f "$work/in" || return
    echo '{"pieces": [["hex", "c"]]}' >"$work/in"
    refuses 'line 1: a "hex" piece is not pairs of hexadecimal digits' k3tool chat-parse -f "$work/in" || return
    echo '{"pieces"' >"$work/in"
    refuses 'line 1: this is not JSON' k3tool chat-parse -f "$work/in"
}

test_ids_that_do_not_exist_are_refused() {
    refuses "2048 is not between 0 and 2047" k3tool detokenize -m "$tiny" --ids 1,2048 &&
        refuses "'1x' is not a whole number" k3tool detokenize -m "$tiny" --ids 1x &&
        refuses "'-3' is not a whole number" k3tool logits -m "$tiny" --ids -3 -o "$work/l" &&
        refuses "no token ids" k3tool logits -m "$tiny" --ids , -o "$work/l" &&
        refuses "-o FILE" k3tool logits -m "$tiny" --ids 1
}

test_logits_have_a_row_for_each_token() {
    expect 0 k3tool logits -m "$tiny" --ids 986,396,11 -o "$work/logits" && quiet_err &&
        is "$(stat -c %s "$work/logits")" $((3 * 2048 * 4)) || return
    is "$(find "$work" -name "logits*" | wc -l)" 1
}

test_logits_do_not_depend_on_the_number_of_threads() {
    local ids=986,396,11,1315,559,280,262,1150,13
    expect 0 k3tool logits -m "$tiny" -t 1 --ids $ids -o "$work/t1" &&
        expect 0 k3tool logits -m "$tiny" -t 2 --ids $ids -o "$work/t2" && same "$work/t1" "$work/t2"
}

test_a_split_set_gives_the_same_bits() {
    local ids=12,300,45,7,499
    expect 0 k3tool logits -m "$single" --ids $ids -o "$work/single" &&
        expect 0 k3tool logits -m "$shard" --ids $ids -o "$work/split" && same "$work/single" "$work/split" || return
    expect 0 k3tool logits -m "$single" --batch 1 --ids $ids -o "$work/decoded" &&
        is "$(stat -c %s "$work/decoded")" "$(stat -c %s "$work/single")"
}

test_an_output_replaces_no_model_and_no_device() {
    cp "$tiny" "$work/model.gguf"
    refuses "is not overwritten" k3tool logits -m "$work/model.gguf" --ids 1 -o "$work/model.gguf" &&
        same "$tiny" "$work/model.gguf" &&
        refuses "no regular file" k3tool logits -m "$tiny" --ids 1 -o /dev/full &&
        refuses "/nowhere/x" k3tool logits -m "$tiny" --ids 1 -o /nowhere/x && [ -c /dev/full ] || return
    echo old >"$work/old"
    ln -s old "$work/link"
    expect 0 k3tool logits -m "$tiny" --ids 1 -o "$work/link" && [ -L "$work/link" ] &&
        is "$(stat -c %s "$work/old")" $((2048 * 4))
}

test_inspect_counts_what_a_model_holds() {
    expect 0 k3tool inspect "$tiny" && quiet_err && says kimi-k3 && says iq1_m || return
    expect 0 k3tool inspect --json "$tiny" && quiet_err &&
        says '"architecture": "kimi-k3"' && says '"experts": 80' && says '"expert_tensors": 15' &&
        says '"expert_parameters": 15728640' && says '"problems": []' || return
    # A set holds what the single file does, up to the keys that divide it.
    expect 0 k3tool inspect --json "$single" && sed '/"file/d; /"metadata"/,/^  }/d' "$work/out" >"$work/one" || return
    expect 0 k3tool inspect --json "$shard" && says '"files": 2' || return
    sed '/"file/d; /"metadata"/,/^  }/d' "$work/out" >"$work/two" && same "$work/one" "$work/two"
}

test_inspect_of_a_broken_file_says_why() {
    head -c 1000 "$tiny" >"$work/short.gguf"
    echo nothing >"$work/text.gguf"
    : >"$work/empty.gguf"
    head -c 8000000 "$tiny" >"$work/cut.gguf"
    sed 's/kimi-k3/llama-3/' "$tiny" >"$work/other.gguf"
    cp "$shard" "$work/lone-00002-of-00002.gguf"
    local name
    for name in short text empty cut other lone-00002-of-00002 nowhere; do
        expect 1 k3tool inspect "$work/$name.gguf" && [ -s "$work/err" ] || return
        expect 1 k3tool inspect --json "$work/$name.gguf" && says '"problems": [' && says '"architecture"' || return
        ! grep -q '"problems": \[\]' "$work/out" || note "$name.gguf has no problem" || return
        refuses "${name%%-0*}" k3run -m "$work/$name.gguf" -p a || return
    done
}

test_synth_makes_a_model_that_runs() {
    expect 0 k3tool synth --dims tiny --layers 3 --experts 5 --vocab 700 -o "$work/synth.gguf" && quiet_err || return
    expect 0 k3tool inspect "$work/synth.gguf" && quiet_err && says '"synthetic K3"' || return
    expect 0 k3run -m "$work/synth.gguf" --raw -p 'hello world' -n 8 && expect 0 k3run -m "$work/synth.gguf" -p hello -n 8 &&
        [ -s "$work/out" ] || return
    expect 0 k3tool synth --dims tiny --layers 3 --experts 5 --vocab 700 -t 1 -o "$work/again.gguf" &&
        same "$work/synth.gguf" "$work/again.gguf" || return
    refuses "is not overwritten" k3tool synth --dims tiny -o "$work/synth.gguf" && same "$work/synth.gguf" "$work/again.gguf"
    rm -f "$work/synth.gguf" "$work/again.gguf"
}

test_synth_refuses_what_makes_no_model() {
    refuses "Name a file with -o" k3tool synth &&
        refuses "--dims is 'big'; real and tiny are known" k3tool synth -o "$work/no.gguf" --dims big &&
        refuses "1 is not between 2" k3tool synth -o "$work/no.gguf" --layers 1 &&
        refuses "3 experts in a layer cannot be: 4" k3tool synth -o "$work/no.gguf" --dims tiny --experts 3 &&
        refuses "100 is not between 512" k3tool synth -o "$work/no.gguf" --vocab 100 &&
        refuses "5 is not between 0 and 4" k3tool synth -o "$work/no.gguf" --skew 5 &&
        refuses "no regular file" k3tool synth --dims tiny -o /dev/full &&
        refuses "/nowhere/x" k3tool synth --dims tiny -o /nowhere/x && [ ! -e "$work/no.gguf" ]
}

test_synth_leaves_nothing_on_a_full_disk() {
    mkdir "$work/small"
    refuses "small/m.gguf: cannot be written: File too large" \
        bash -c 'ulimit -f 2000; exec k3tool synth --dims tiny -o "$1"' sh "$work/small/m.gguf" &&
        is "$(ls -A "$work/small")" ""
}

test_routing_counts_a_trace() {
    printf '{"tok": %d, "layers": [[1, 2], [3, 4]]}\n' 0 1 >"$work/trace.jsonl"
    expect 0 k3tool routing --experts 10 "$work/trace.jsonl" && quiet_err &&
        says '2 tokens, 2 MoE layers, 2 of 10 experts' && says '1.000    1.00' || return
    refuses "has expert 4, but --experts is 4" k3tool routing --experts 4 "$work/trace.jsonl" &&
        refuses "which trace" k3tool routing && refuses "token 0 is no JSON" k3tool routing "$tiny"
}

# ---- k3bench ----

test_the_benchmark_measures() {
    expect 0 k3bench decode -m "$tiny" -n 2 -r 2 --at 3 && says tokens/s && quiet_err || return
    expect 0 k3bench prefill -m "$tiny" -n 8 -r 3 --json && says '"tokens_per_s"' && says '"tokens": 8' &&
        says '"context": 0' && says '"compute_s"' && says '"io_s"' && says '"wait_s"' &&
        says '"hit_rate": 0.' && says '"bytes_read"' || return
    # Of mapped files neither hits nor waiting is known. Each repetition brings tokens of its own.
    expect 0 k3bench decode -m "$tiny" -n 2 -r 1 --io mmap --json && says '"total_s"' &&
        is "$(grep -cE 'compute_s|io_s|wait_s|hit_rate|bytes_read' "$work/out")" 0 || return
    expect 0 k3bench prefill -m "$tiny" -n 1 -r 1 --trace-routing "$work/routing" &&
        is "$(sed 's/"tok": [01],//' "$work/routing" | sort -u | wc -l)" 2
}

test_policies_are_compared() {
    local traces=$data/traces
    expect 0 k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --slots 42% --slots 153 && quiet_err &&
        says '299 tokens, 16 layers of 64 experts' && says '     430   42.0%    72.9' && says '     153   14.9%    44.0' ||
        return
    expect 0 k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --slots 42% --warmup 0 --experts 128 --json &&
        says '"slots": 860' && says '"experts": 128' && says '"policies": {"lru": 0.' && says '"belady": 0.' || return
    refuses "which trace?" k3bench policy &&
        refuses "/nowhere/x" k3bench policy --trace /nowhere/x &&
        refuses "is no JSON" k3bench policy --trace "$tiny" &&
        refuses "--slots: 'many' is no amount" k3bench policy --trace x --slots many &&
        refuses "--slots: 2048 are more than the 1024 experts" k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --slots 2K &&
        refuses "7 slots are too few: a layer asks for 8" \
            k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --slots 7 --json &&
        refuses "--warmup: 299 tokens leave none" \
            k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --warmup 299 &&
        refuses "has expert 63" k3bench policy --trace "$traces/olmoe-decode-299.jsonl" --experts 63
}

test_decode_has_a_row_for_each_place() {
    expect 0 k3bench decode -m "$tiny" -n 2 -r 2 --at 0,5,9 --slots 30 --json && quiet_err && mv "$work/out" "$work/decode.json" &&
        json_is 3 "$work/decode.json" rows '#' && json_is 9 "$work/decode.json" rows 2 context &&
        json_is 30 "$work/decode.json" slots && json_get "$work/decode.json" machine kernels >"$work/kernels" || return
    local key
    for key in compute_alone_s overlap_ratio spread; do
        json_get "$work/decode.json" rows 1 $key >/dev/null || note "no $key" || return
    done
    for key in attention dense_ffn router expert sum logits other; do
        json_get "$work/decode.json" rows 1 operations $key >/dev/null || note "no $key" || return
    done
    [[ $(json_get "$work/decode.json" model_hash) == '"fnv1a64:'* ]] || note "no hash" || return
    expect 0 k3bench prefill -m "$tiny" -n 4 -r 1 --csv && is "$(wc -l <"$work/out")" 2 && says machine.cpu || return
    refuses "the list must ascend" k3bench decode -m "$tiny" --at 5,5 &&
        refuses "--at: 'x' is no amount" k3bench decode -m "$tiny" --at x &&
        refuses "exclude each other" k3bench decode -m "$tiny" --json --csv &&
        refuses 'K3_CPU: there are no kernels called "8086", only: ' env K3_CPU=8086 k3bench decode -m "$tiny" -n 1 || return
    K3_CPU=portable expect 0 k3bench decode -m "$tiny" -n 1 -r 1 && says 'portable kernels'
}

test_names_that_are_no_utf8_are_no_broken_json() {
    local name=$work/$'bad\377.gguf'
    cp "$tiny" "$name"
    expect 0 k3bench decode -m "$name" -n 1 -r 1 --json && mv "$work/out" "$work/bad.json" &&
        json_is "\"$work/bad?.gguf\"" "$work/bad.json" model || return
    expect 0 k3bench io -m "$name" -n 1 -r 1 --json && mv "$work/out" "$work/bad.json" &&
        json_is "\"$work/bad?.gguf\"" "$work/bad.json" model || return
    cp "$data/traces/olmoe-decode-299.jsonl" "$name"
    expect 0 k3bench policy --trace "$name" --json && mv "$work/out" "$work/bad.json" &&
        json_is "\"$work/bad?.gguf\"" "$work/bad.json" trace
    rm -f "$name"
}

test_kernels_are_timed_and_drawn() {
    expect 0 k3bench kernels --types q8_0,iq1_m --columns 1,9 -t 1 -r 2 --streamed 4M --variants portable --json && quiet_err &&
        mv "$work/out" "$work/kernels.json" && json_is 6 "$work/kernels.json" '#' &&
        json_is '"iq1_m"' "$work/kernels.json" 0 name && json_is '"portable"' "$work/kernels.json" 0 variant &&
        json_is null "$work/kernels.json" 0 share_of_peak || return
    local key
    for key in columns threads weights_per_s bytes_per_s share_of_bandwidth multiply_adds_per_s spread; do
        [[ $(json_get "$work/kernels.json" 5 $key) == [0-9]* ]] || note "no $key" || return
    done
    expect 0 k3bench kernels --types q8_0 --columns 1 -t 1 -r 1 --streamed 1M && says 'Gweights/s' && says resident || return
    refuses "--types: 'q9' is none of: iq1_m, iq2_xxs, q8_0" k3bench kernels --types q9 &&
        refuses "--variants: '8086' is none of: " k3bench kernels --variants 8086 &&
        refuses "--columns: 0 is not between 1" k3bench kernels --columns 0 &&
        refuses "bytes of weights to stream are too few" k3bench kernels --streamed 1K || return

    expect 0 k3bench decode -m "$tiny" -n 2 -r 1 --json && mv "$work/out" "$work/speed.json" || return
    expect 0 k3bench floats --variants plain -r 1 --json && mv "$work/out" "$work/floats.json" &&
        json_is '"kda_head"' "$work/floats.json" 0 name && json_get "$work/floats.json" 0 values_per_s >/dev/null || return
    expect 0 k3bench plot "$work/kernels.json" "$work/floats.json" "$work/speed.json" -o "$work/charts.svg" && quiet_err &&
        grep -q '<title>iq1_m, portable, kernels.json: ' "$work/charts.svg" && grep -q 'Tokens a second: decode' "$work/charts.svg" &&
        is "$(tail -n 1 "$work/charts.svg")" '</svg>' || return
    echo '[{"verb": "<i>", "tokens_per_s": 1e308, "tokens_per_s_max": 1e308, "operations": {"a": 1e308, "b": -1, "c": "x"}}]' >"$work/odd.json"
    timeout 20 k3bench plot "$work/odd.json" -o "$work/odd.svg" && grep -q '&lt;i&gt;' "$work/odd.svg" &&
        ! grep -qE 'inf|nan|<i>' "$work/odd.svg" || note "odd results" || return
    echo '[{"name": "a", "variant": "b", "columns": 1, "threads": 1, "multiply_adds_per_s": 4e-315}]' >"$work/odd.json"
    timeout -s KILL 20 k3bench plot "$work/odd.json" -o "$work/odd.svg" || note "a rate too small to be drawn" || return
    echo '[{"a": 1}]' >"$work/other.json"
    echo '{"rows": []}' >"$work/empty.json"
    refuses "is of neither" k3bench plot "$work/other.json" -o "$work/no.svg" &&
        refuses "is no list of results" k3bench plot "$work/empty.json" -o "$work/no.svg" &&
        refuses "line 1 is no JSON" k3bench plot "$tiny" -o "$work/no.svg" &&
        refuses "which results" k3bench plot -o "$work/no.svg" && refuses "with -o" k3bench plot "$work/speed.json" &&
        ! test -e "$work/no.svg"
}

test_the_check_of_gpus_says_what_is_missing() {
    [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] || return $SKIP
    refuses "gpu-check: there is no " "$models/../tools/gpu-check" --output "$work/report.md" &&
        refuses "is there already" "$models/../tools/gpu-check" --output "$tiny" &&
        refuses "there is no option" "$models/../tools/gpu-check" --fast && [ ! -e "$work/report.md" ]
}

test_a_machine_is_predicted() {
    expect 0 k3bench model-of && quiet_err && says '93 layers; a token takes 55.24 G dense' && says '48.62 G of experts' &&
        says '<- binds' || return
    expect 0 k3bench model-of -m "$tiny" --vram 0 --hits 50% --json && mv "$work/out" "$work/model.json" &&
        json_is 0.5 "$work/model.json" 0 hits && json_is '"prefill"' "$work/model.json" 1 verb || return
    expect 0 k3bench kernels --types iq1_m --columns 1 -t 1 -r 1 --streamed 1M --json && mv "$work/out" "$work/k.json" &&
        expect 0 k3bench model-of --kernels "$work/k.json" --layers 4 && says '4 layers' || return
    expect 0 k3bench model-of --gpu-table && says 'times its memory alone' && says 'multiply_row       92' || return
    expect 0 k3bench model-of --gpu-table --json && mv "$work/out" "$work/gpu.json" &&
        json_is '"gpu"' "$work/gpu.json" 2 verb && refuses "not into CSV" k3bench model-of --gpu-table --csv || return
    refuses "has no rates of iq1_m" k3bench model-of --kernels "$work/model.json" &&
        refuses "--hits is a share" k3bench model-of --hits 1 && refuses "not shares" k3bench model-of --ram 5%
}

# Every option that --help shows is in the manual.
test_the_manual_of_k3bench_has_every_option() {
    local verb option manual=$models/../docs/man/k3bench.1
    for verb in decode prefill kernels floats model-of plot policy io; do
        grep -q "^\.Ss .*$verb" "$manual" || note "$verb is not in the manual" || return
        expect 0 k3bench $verb --help || return
        for option in $(grep -oE '^  (-., |    )--[a-z-]+' "$work/out" | sed 's/.*--//'); do
            grep -qE -- "[ ,]-$option( |\$)" "$manual" || note "--$option of $verb is not in the manual" || return
        done
    done
}

# ---- all of them ----

seeds=0
shift 4
tests=$([ $# -gt 0 ] && printf '%s\n' "$@" || declare -F | sed -n 's/^declare -f \(test_\)/\1/p')
echo "1..$(echo "$tests" | wc -l)"
number=0 failed=0
for name in $tests; do
    number=$((number + 1))
    $name
    case $? in
    0) echo "ok $number - ${name#test_}" ;;
    "$SKIP") echo "ok $number - ${name#test_} # SKIP not on this machine, or not in this build" ;;
    *)
        echo "not ok $number - ${name#test_}"
        failed=1
        ;;
    esac
done
exit $failed
