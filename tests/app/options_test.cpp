#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/flags.h"
#include "app/job_file.h"
#include "kernels/core/error.h"

using namespace tokenmill;
using namespace tokenmill::app;
using Arguments = std::vector<std::string>;

namespace {

RunOptions options_of(const Arguments& arguments) { return parse_options(parse_command_line(arguments)); }

std::string error_of(const Arguments& arguments) {
  try {
    options_of(arguments);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

RunOptions options_of_yaml(const std::string& text) {
  RunOptions options;
  for (const Setting& setting : parse_job_file(text, "job.yaml")) apply_setting(options, setting, kRun);
  return options;
}

std::string yaml_error(const std::string& text) {
  try {
    options_of_yaml(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

struct TemporaryDirectory {
  std::string path = std::filesystem::temp_directory_path() / "tokenmill-options-XXXXXX";
  TemporaryDirectory() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name, const std::string& text = "") const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
};

}  // namespace

TEST_CASE("flags land in the options, switches with and without a value") {
  const RunOptions o = options_of({"run",
                                   "--model",
                                   "m",
                                   "--input",
                                   "a",
                                   "b",
                                   "--input",
                                   "c",
                                   "--output=out",
                                   "--max-num-seqs",
                                   "64",
                                   "--kv-cache-memory-bytes",
                                   "1.5G",
                                   "--restart",
                                   "--enable-chunked-prefill",
                                   "false",
                                   "--no-enable-prefix-caching",
                                   "--long-prefill-token-threshold=512",
                                   "--max-num-partial-prefills",
                                   "3",
                                   "--watermark",
                                   "0.05",
                                   "--no-skip-special-tokens",
                                   "--top-k",
                                   "-1",
                                   "--temperature",
                                   "0",
                                   "--stop",
                                   "-x",
                                   "[y,z]",
                                   "%%",
                                   "{}",
                                   "--max_tokens",
                                   "9",
                                   "--seed",
                                   "18446744073709551615",
                                   "--max-row-errors",
                                   "2.5%",
                                   "--dtype",
                                   "float"});
  CHECK(o.model == "m");
  CHECK(o.input == Arguments{"a", "b", "c"});
  CHECK(o.output == "out");
  CHECK(o.max_num_seqs == 64);
  CHECK(o.kv_cache_memory_bytes == (int64_t{3} << 29));
  CHECK(o.restart);
  CHECK_FALSE(o.scheduler.enable_chunked_prefill);
  CHECK_FALSE(o.scheduler.enable_prefix_caching);
  CHECK(o.scheduler.long_prefill_token_threshold == 512);
  CHECK(o.scheduler.max_num_partial_prefills == 3);
  CHECK(o.scheduler.watermark == 0.05);
  CHECK(io::to_json(o.sampling) ==
        R"({"temperature":0,"top_k":-1,"max_tokens":9,"stop":["-x","[y,z]","%%","{}"],"skip_special_tokens":false})");
  CHECK(o.seed == 18446744073709551615u);
  CHECK(o.max_row_errors.percent == 2.5);
  CHECK(o.dtype == DType::kF32);
}

TEST_CASE("a switch does not swallow the job file behind it") {
  TemporaryDirectory dir;
  const std::string job = dir.file("job.yaml", "max-num-seqs: 3\nseed: 5\n");
  const RunOptions o = options_of({"run", "--restart", job, "--seed", "6"});
  CHECK(o.restart);
  CHECK(o.max_num_seqs == 3);
  CHECK(o.seed == 6);  // flags win
}

TEST_CASE("a word behind a switch that is no job file must be its value; files that users name must exist") {
  CHECK(error_of({"run", "--ignore-eos", "yes"}) == "--ignore-eos is yes; it must be true or false");
  CHECK(error_of({"run", "--deterministic", "maybe"}) == "--deterministic is maybe; it must be true or false");
  CHECK(error_of({"run", "--no-ignore-eos", "true"}) ==
        "--no-ignore-eos takes no value, and true is given; write --no-ignore-eos alone or --ignore-eos=true");
  for (const bool partial : {true, false}) {  // merge's directories have any name
    const RunOptions o = options_of({"merge", partial ? "--partial" : "--no-partial", "yes", "b", "--output", "c"});
    CHECK(o.merge.partial == partial);
    CHECK(o.merge.directories == Arguments{"yes", "b"});
  }
  TemporaryDirectory dir;
  CHECK(error_of({"run", dir.path + "/none.yaml"}) == "the job file " + dir.path + "/none.yaml: no such file");
  CHECK(error_of({"run", dir.path}) == "the job file " + dir.path + " is a directory; it must be a file");
}

TEST_CASE("vLLM's short flags are taken in their long form") {
  CHECK(options_of({"run", "-dp", "2"}).data_parallel_size == 2);
  CHECK(options_of({"run", "-tp", "2"}).tensor_parallel_size == 2);
  CHECK(options_of({"bench", "throughput", "-pp=4"}).pipeline_parallel_size == 4);
  CHECK(options_of({"run", "--tp-invariant", "8"}).tp_invariant == 8);
  CHECK(error_of({"run", "-tp", "0"}) ==
        "--tensor-parallel-size is 0; it must be a whole number between 1 and 1048576");
  CHECK(error_of({"run", "-tp", "2", "--tensor-parallel-size=2"}) ==
        "--tensor-parallel-size is given 2 times; keep one");
}

TEST_CASE("merge takes any number of directories") {
  const RunOptions o = options_of({"merge", "a", "b", "--partial", "--output", "c.jsonl", "d"});
  CHECK(o.merge.directories == std::vector<std::string>{"a", "b", "d"});
  CHECK(o.merge.partial);
  CHECK(o.output == "c.jsonl");
  CHECK(error_of({"merge", "a", "--restart"}) != "no error");
  CHECK(error_of({"run", "--partial"}) != "no error");
}

TEST_CASE("options and commands of later versions are refused by name and absent from help") {
  CHECK(error_of({"run", "--enable-expert-parallel"}) == "--enable-expert-parallel is not available in this version");
  CHECK(error_of({"run", "--kv-cache-dtype", "fp8"}) == "--kv-cache-dtype is not available in this version");
  CHECK(error_of({"report", "x"}) == "the command report is not available in this version");
  CHECK(yaml_error("quantization: awq\n") == "job.yaml:1: quantization is not available in this version");
  const std::string help = parse_command_line({"run", "--help"}).text;
  for (const char* absent : {"expert-parallel", "kv-cache-dtype", "quantization"})
    CHECK_MESSAGE(help.find(absent) == std::string::npos, absent);
  CHECK(parse_command_line({"--help"}).text.find("  report") == std::string::npos);
}

TEST_CASE("help shows every option of the command with its default, and no others") {
  const std::string help = parse_command_line({"run", "--help"}).text;
  for (const OptionSpec& spec : option_table())
    CHECK_MESSAGE(
        (help.find("--" + std::string(spec.name) + " ") != std::string::npos) == ((spec.commands & kRun) != 0),
        spec.name);
  CHECK(help.find("(default: 256)") != std::string::npos);
  CHECK(parse_command_line({"--version"}).text.starts_with("tokenmill "));
}

TEST_CASE("an option that is unknown, repeated or without value says what to do") {
  CHECK(error_of({"run", "--max-num-seq", "3"}) ==
        "--max-num-seq is not an option of this command; did you mean --max-num-seqs?");
  CHECK(error_of({"run", "--frobnicate"}) == "--frobnicate is not an option of this command; --help lists them");
  CHECK(error_of({"run", "--input-len", "3"}) == "--input-len is not an option of this command; --help lists them");
  CHECK(error_of({"run", "--seed", "1", "--seed", "2"}) == "--seed is given 2 times; keep one");
  CHECK(error_of({"run", "--restart", "--restart"}) == "--restart is given 2 times; keep one");
  CHECK(error_of({"run", "--seed"}) == "--seed needs a value (N)");
  CHECK(error_of({"run", "--model"}) == "--model needs a value (PATH)");
  CHECK(error_of({"run", "--input"}) == "--input needs a value (FILE...)");
  CHECK(error_of({"run", "--input", "a", ""}) == "--input is empty; it needs a value");
  CHECK(error_of({"runn"}) == "runn is not a command; did you mean run?; tokenmill --help lists them");
  CHECK(error_of({"run", "a.yaml", "b"}) == "b is one argument too many for run; --help lists the options");
  CHECK(error_of({"bench", "latency"}) ==
        "bench latency is not a benchmark of this version; choose throughput or kernels");
}

TEST_CASE("values outside their range name what is allowed") {
  struct Row {
    Arguments arguments;
    std::string message;
  };
  for (const Row& row : std::vector<Row>{
           {{"--max-num-seqs", "0"}, "--max-num-seqs is 0; it must be a whole number between 1 and 65536"},
           {{"--max-num-seqs", "010"}, "--max-num-seqs is 010; it must be a whole number between 1 and 65536"},
           {{"--max-num-seqs", "1e3"}, "--max-num-seqs is 1e3; it must be a whole number between 1 and 65536"},
           {{"--seed", "-2"}, "--seed is -2; it must be -1 (none) or a whole number between 0 and 18446744073709551615"},
           {{"--seed", "18446744073709551616"},
            "--seed is 18446744073709551616; it must be -1 (none) or a whole number between 0 and 18446744073709551615"},
           {{"--temperature", "2.5"}, "--temperature is 2.5; it must be between 0 and 2"},
           {{"--temperature", "1e309"}, "--temperature is 1e309; it must be between 0 and 2"},
           {{"--top-p", "1e-400"}, "--top-p is 1e-400; it must be above 0 and at most 1"},
           {{"--temperature", "nan"}, "--temperature is nan; it must be a number"},
           {{"--block-size", "24"}, "--block-size is 24; it must be a multiple of 16"},
           {{"--dtype", "fp8"}, "--dtype is fp8; it must be one of auto, half, float16, bfloat16, float, float32"},
           {{"--kv-cache-memory-bytes", "4X"},
            "--kv-cache-memory-bytes is 4X; it must be a size in bytes of at least 1, e.g. 4096, 512M or 1.5G"},
           {{"--restart=maybe"}, "--restart is maybe; it must be true or false"},
           {{"--max-row-errors", "101%"}, "--max-row-errors is 101%; a share must be between 0% and 100%"},
           {{"--max-row-errors", "x"},
            "--max-row-errors is x; it must be a whole number of at least 0, or a share of all rows such as 0.5%"},
           {{"--max-num-seqs", "99999999999999999999"},
            "--max-num-seqs is 99999999999999999999; it must be a whole number between 1 and 65536"},
           {{"--num-prompts", "99999999999999999999"},
            "--num-prompts is not an option of this command; --help lists them"},
           {{"-x", "1"},
            "-x is not an option of run; options begin with two dashes (short ones: -tp, -pp, -dp), and --help lists them"},
           {{"--device", "tpu"}, "--device is tpu; it must be one of auto, cpu, cuda"},
           {{"--date", "2024-13-01"}, "--date is 2024-13-01; it must be a day as YYYY-MM-DD"},
           {{"--deterministic", "false"},
            "--deterministic is false; this version has only deterministic paths: leave it out"},
       }) {
    Arguments arguments = {"run"};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    CHECK(error_of(arguments) == row.message);
  }
}

TEST_CASE("counts of rows' fields name their own bounds for text that is no whole number") {
  const auto bounds = [](const std::string& option, const std::string& value) {
    const std::string message = error_of({"run", option, value}), begin = option + " is " + value + "; it must be ";
    REQUIRE_MESSAGE(message.starts_with(begin), message);
    return message.substr(begin.size());
  };
  for (const char* value : {"1.5", "0x10", "x", "-2"}) {
    CHECK(bounds("--n", value) == "a whole number between 1 and 16384");
    CHECK(bounds("--max-tokens", value) == "a whole number of at least 0");
    CHECK(bounds("--min-tokens", value) == "a whole number of at least 0");
    for (const char* option :
         {"--top-k", "--logprobs", "--prompt-logprobs", "--thinking-token-budget", "--truncate-prompt-tokens"})
      CHECK(bounds(option, value) == "a whole number of at least -1");
  }
  CHECK(error_of({"run", "--logit-bias", "5=--3"}) == "--logit-bias 5 is --3; it must be a number");
  CHECK(error_of({"run", "--repetition-detection", "min_count=2.5"}) ==
        "--repetition-detection.min_count is 2.5; it must be a whole number");
}

TEST_CASE("a job file holds the same names, in either spelling, and lists") {
  const RunOptions o = options_of_yaml(
      "# a job\nmodel: m.gguf\ninput: [a.jsonl, 'b*.jsonl']\nmax_num_seqs: 7\nrestart: true\n"
      "sampling:\n  temperature: 0.5\n  stop: [\"true\", '0123']\n  ignore_eos: false\n");
  CHECK(o.model == "m.gguf");
  CHECK(o.input == Arguments{"a.jsonl", "b*.jsonl"});
  CHECK(o.max_num_seqs == 7);
  CHECK(o.restart);
  CHECK(io::to_json(o.sampling) == R"({"temperature":0.5,"stop":["true","0123"],"ignore_eos":false})");
  CHECK(options_of_yaml("").max_num_seqs == 256);
}

TEST_CASE("fields of rows are options, held to the rules of rows") {
  CHECK(io::to_json(options_of({"run", "--n", "4", "--presence-penalty", "-0.5", "--logit-bias", "5=-100", "7=1.5",
                                "--bad-words", "a", "b", "--truncation-side", "right", "--logprobs", "-1",
                                "--repetition-detection", "max_pattern_size=3", "min_count=2"})
                        .sampling) ==
        R"({"n":4,"presence_penalty":-0.5,"repetition_detection":{"max_pattern_size":3,"min_count":2},)"
        R"("logit_bias":{"5":-100,"7":1.5},"bad_words":["a","b"],"logprobs":-1,"truncation_side":"right"})");
  CHECK(io::to_json(options_of_yaml("sampling:\n  logit_bias: {5: -100, 7: 1.5}\n").sampling) ==
        R"({"logit_bias":{"5":-100,"7":1.5}})");
  CHECK(error_of({"run", "--n", "0"}) == "--n is 0; it must be a whole number between 1 and 16384");
  CHECK(error_of({"run", "--temperature", "9"}) == "--temperature is 9; it must be between 0 and 2");
  CHECK(error_of({"run", "--logit-bias", "1=1", "1=2"}) == "--logit-bias names 1 twice; keep one");
  CHECK(error_of({"run", "--logit-bias", "1=1", "01=2"}) == "--logit-bias names token 1 twice");
  CHECK(error_of({"run", "--repetition-detection", "min_count=2", "min_count=3"}) ==
        "--repetition-detection names min_count twice; keep one");
  CHECK(error_of({"run", "--chat-template-kwargs", "a=1", "a=2"}) == "--chat-template-kwargs names a twice; keep one");
  CHECK(options_of({"run", "--seed", "-1"}).seed == 0);
  CHECK(error_of({"run", "--logit-bias", "5"}) == "--logit-bias holds 5; its items are NAME=NUMBER");
  CHECK(error_of({"run", "--logit-bias", "x=1"}) == "--logit-bias names \"x\"; its keys must be token ids");
  CHECK(error_of({"run", "--stop", ""}).starts_with("--stop"));
  CHECK(yaml_error("sampling:\n  repetition_penalty: 0\n") ==
        "job.yaml:2: repetition_penalty is 0; it must be above 0 and finite");
  CHECK(io::to_json(options_of({"run", "--chat-template-kwargs", "enable_thinking=false", "mood=calm=1"})
                        .chat_template_kwargs) == R"({"enable_thinking":false,"mood":"calm=1"})");
  CHECK(io::to_json(options_of_yaml("chat_template_kwargs: {enable_thinking: false}\n").chat_template_kwargs) ==
        R"({"enable_thinking":false})");
  CHECK(options_of({"run", "--overlong", "truncate-left"}).overlong == rows::Overlong::kTruncateLeft);
  CHECK(error_of({"run", "--overlong", "drop"}) ==
        "--overlong is drop; it must be one of error, truncate-left, truncate-right, skip");
}

TEST_CASE("what is wrong in a job file is named with file and line") {
  CHECK(yaml_error("model: m\nmax-num-seq: 3\n") ==
        "job.yaml:2: max-num-seq is not an option of this command; did you mean max-num-seqs?");
  CHECK(yaml_error("seed: 1\nmodel: m\nseed: 2\n") == "job.yaml:3: seed is given twice (first in line 1); keep one");
  CHECK(yaml_error("max_num_seqs: 1\nmax-num-seqs: 2\n") ==
        "job.yaml:2: max-num-seqs is given twice (first in line 1); keep one");
  CHECK(yaml_error("temperature: 1\nsampling:\n  temperature: 0\n") ==
        "job.yaml:3: temperature is given twice (first in line 1); keep one");
  CHECK(yaml_error("seed: 010\n") ==
        "job.yaml:1: seed is 010; it must be -1 (none) or a whole number between 0 and 18446744073709551615");
  CHECK(yaml_error("seed:\n") == "job.yaml:1: seed has no value; give one or remove the line");
  CHECK(yaml_error("max-model-len: [100]\n") ==
        "job.yaml:1: max-model-len is a list; it takes one value: write it without brackets or dash");
  CHECK(error_of({"bench", "throughput", "--num-prompts", "99999999999999999999"}) ==
        "--num-prompts is 99999999999999999999; it must be a whole number between 1 and 9223372036854775807");
  CHECK(yaml_error("seed: [1, 2]\n") == "job.yaml:1: seed has 2 values; it takes one");
  CHECK(yaml_error("input: []\n") == "job.yaml:1: input needs a value (FILE...)");
  CHECK(yaml_error("input: [a, [b]]\n") ==
        "job.yaml:1: input: item 2 is not a plain value; lists hold plain values only");
  CHECK(yaml_error("input: {a: b}\n") == "job.yaml:1: input is a mapping; it must be a value or a list of values");
  CHECK(yaml_error("sampling:\n  model: x\n") ==
        "job.yaml:2: model is not a sampling option; move it out of \"sampling:\"");
  CHECK(yaml_error("sampling: 3\n") == "job.yaml:1: sampling must be a mapping such as \"temperature: 0\"");
  CHECK(yaml_error("- a\n").find("job.yaml must hold option names and values") == 0);
  CHECK(yaml_error("a: [\n").find("job.yaml:2: not valid YAML") == 0);
  CHECK(yaml_error("seed: 1\n---\nseed: 2\n") == "job.yaml holds 2 YAML documents; a job file is one");
}

TEST_CASE("inputs stay in the order given, the files of a glob are sorted; names that exist are taken as they are") {
  TemporaryDirectory dir;
  for (const char* name : {"b.jsonl", "a.jsonl", "x[1].jsonl"}) dir.file(name);
  RunOptions o;
  o.model = dir.path;
  o.output = dir.path + "/out";
  o.input = {dir.path + "/x[1].jsonl", dir.path + "/?.jsonl"};
  finish_options(o, "run", 1);
  CHECK(o.input == Arguments{dir.path + "/x[1].jsonl", dir.path + "/a.jsonl", dir.path + "/b.jsonl"});

  const auto error_with = [&](auto change) -> std::string {
    RunOptions changed = o;
    change(changed);
    try {
      finish_options(changed, "run", 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(error_with([&](RunOptions& c) { c.input = {dir.path + "/c*.jsonl"}; }).find("no such file matches") !=
        std::string::npos);
  CHECK(error_with([&](RunOptions& c) {
          c.input = {dir.path + "/*.jsonl", dir.path + "/a.jsonl"};
        }).find("twice") != std::string::npos);
  CHECK(error_with([&](RunOptions& c) {
          c.input = {dir.path + "/a.jsonl", dir.path + "/./a.jsonl"};
        }).find("twice") != std::string::npos);
  const std::string pipe = dir.path + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);  // opening it would wait for a writer
  CHECK(error_with([&](RunOptions& c) { c.input = {pipe}; }) ==
        "input " + pipe +
            " is a pipe; inputs are read more than once and by every rank, so write what it gives to a file first");
  CHECK(error_with([&](RunOptions& c) { c.chat_template = pipe; }) ==
        "--chat-template " + pipe + " is a pipe; it must be a file, which can be read again");
  CHECK(error_with([&](RunOptions& c) { c.model = pipe; }) ==
        "--model " + pipe + " is a pipe; it must be a Hugging Face directory or a .gguf file");
  CHECK(error_with([&](RunOptions& c) { c.model = "/dev/zero"; }).find("is a terminal or another device") !=
        std::string::npos);
  CHECK(error_with([&](RunOptions& c) { c.model = dir.path + "/none"; }).find("no such file or directory") !=
        std::string::npos);
  const std::string link = dir.path + "/link";
  std::filesystem::create_symlink(dir.path + "/gone", link);
  for (const char* end : {"", "/"})
    CHECK(error_with([&](RunOptions& c) { c.output = link + end; }) ==
          "--output " + link + end + " is a link to " + dir.path +
              "/gone, which is not there; make that directory or remove the link");
  CHECK(error_with([&](RunOptions& c) { c.input = {dir.path}; }).find("is a directory") != std::string::npos);
  CHECK(error_with([&](RunOptions& c) { c.input.clear(); }) == "run needs --input");
  CHECK(error_with([&](RunOptions& c) { c.model.clear(); }) == "run needs --model");
  CHECK(error_with([&](RunOptions& c) { c.output = dir.path + "/a.jsonl"; }).find("is a file") != std::string::npos);
  CHECK(error_with([&](RunOptions& c) { c.data_parallel_size = 4; }) ==
        "--data-parallel-size 4 x --pipeline-parallel-size 1 x --tensor-parallel-size 1 = 4 ranks, and there is 1; "
        "start 4 "
        "or leave --data-parallel-size out");
  CHECK(
      error_with([&](RunOptions& c) { c.tensor_parallel_size = 2; }).ends_with("no whole number of replicas; start 2"));
  CHECK(error_with([&](RunOptions& c) {
          c.scheduler.enable_chunked_prefill = false;
          c.scheduler.long_prefill_token_threshold = 64;
        }) ==
        "--long-prefill-token-threshold 64 needs chunked prefill; leave it out or --enable-chunked-prefill on");
  CHECK(error_with([&](RunOptions& c) { c.max_num_batched_tokens = 8; }).find("below --max-num-seqs") !=
        std::string::npos);
}

TEST_CASE("the limit of failed rows is a count or a share") {
  CHECK(RowErrorLimit{}.allows(0, 10));
  CHECK_FALSE(RowErrorLimit{}.allows(1, 10));
  CHECK(RowErrorLimit{.count = 2}.allows(2, 10));
  CHECK(RowErrorLimit{.percent = 10.0}.allows(1, 10));
  CHECK_FALSE(RowErrorLimit{.percent = 10.0}.allows(2, 10));
  CHECK(RowErrorLimit{.percent = 0.0}.allows(0, 0));
}
