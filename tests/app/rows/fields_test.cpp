#include "app/rows/fields.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

TEST_CASE("fields that cannot be honoured are errors by name, except at their neutral value") {
  CHECK(
      error_of(R"({"prompt":"x","best_of":2})") ==
      "best_of: in.jsonl:1: best_of is 2; this version supports only 1: give that or leave it out; for several answers "
      "set n and a temperature");
  CHECK(error_of(R"({"prompt":"x","structured_outputs":{"regex":"a"}})") ==
        "structured_outputs: in.jsonl:1: structured_outputs is {\"regex\":\"a\"}; this version supports no value here: "
        "leave it out; ask for the form in the prompt, and check the text");
  CHECK(error_of(R"({"prompt":"x","use_beam_search":true})").starts_with("use_beam_search: "));
  CHECK(error_of(
            R"({"prompt":"x","best_of":1,"length_penalty":1.0,"structured_outputs":null,"use_beam_search":false})") ==
        "");
}

TEST_CASE("known names that a native row cannot have honoured are errors, unknown ones are columns") {
  for (const char* name : {"max_new_tokens",
                           "min_new_tokens",
                           "sampling_seed",
                           "random_seed",
                           "n_predict",
                           "stop_words",
                           "repeat_penalty",
                           "top_logprobs",
                           "guided_json",
                           "guided_regex",
                           "guided_choice",
                           "guided_grammar",
                           "structured_outputs",
                           "priority",
                           "prompt_logprob_start",
                           "prompt_logprob_token_ids",
                           "output_kind",
                           "extra_args",
                           "suffix",
                           "function_call"}) {
    const std::string error = error_of(fmt::format(R"({{"prompt":"x","{}":7}})", name));
    CHECK_MESSAGE(error.starts_with(fmt::format("{0}: in.jsonl:1: {0} is 7; ", name)), error);
    CHECK(error_of(fmt::format(R"({{"prompt":"x","{}":null}})", name)).empty());
  }
  CHECK(error_of(R"({"prompt":"x","max_new_tokens":7})")
            .ends_with("this version's name for it is max_tokens; if it is a column of yours, name it by --passthrough "
                       "max_new_tokens"));
  CHECK(error_of(R"({"prompt":"x","min_new_tokens":0,"customer":7})").empty());
}

TEST_CASE("ids for positions of the prompt come as lists of any length, -1 where there are fewer") {
  const Request r = request_of(
      R"({"prompt":"abcde","prompt_logprob_token_ids":[[5,-1],[6,7,8],[]],"prompt_logprob_start":1,"max_tokens":0})");
  CHECK(r.sampling.prompt_logprob_ids == PromptLogprobIds{3, {5, -1, -1, 6, 7, 8, -1, -1, -1}, 1});
  CHECK(r.sampling.prompt_logprob_ids.num_rows() == 3);
  const std::string at = "prompt_logprob_token_ids: in.jsonl:1: prompt_logprob_token_ids";
  CHECK(error_of(R"({"prompt":"x","prompt_logprob_token_ids":[5]})") ==
        at + " is [5]; it must be a list of lists of token ids");
  CHECK(error_of(R"({"prompt":"x","prompt_logprob_token_ids":[[],[]]})") ==
        at + " is [[],[]]; it must be a list of lists of token ids, with one id at least");
  CHECK(error_of(R"({"prompt":"x","prompt_logprob_token_ids":[[1],[2,-2]]})") ==
        at + "[1][1] is -2; it must be a token id, or -1 for none");
  CHECK(error_of(R"({"prompt":"x","prompt_logprob_start":2})") ==
        "prompt_logprob_start: in.jsonl:1: prompt_logprob_start is 2; it needs prompt_logprob_token_ids");
}

TEST_CASE("what says how an answer is handed out, or is for samplers of one's own, is checked and changes nothing") {
  for (const char* fields :
       {R"("output_kind":"DELTA")", R"("output_kind":2)", R"("stream_interval":5)", R"("skip_clone":true)",
        R"("extra_args":{"a":[18446744073709551615,{"b":-9223372036854775808}]})",
        R"("vllm_xargs":{"name":"x","f":0.5})"})
    CHECK(error_of(fmt::format(R"({{"prompt":"x",{}}})", fields)) == "");
  for (const char* fields : {R"("output_kind":"ALL")", R"("output_kind":3)", R"("stream_interval":0)",
                             R"("skip_clone":1)", R"("extra_args":[1])", R"("extra_args":{"a":18446744073709551616})"})
    CHECK(error_of(fmt::format(R"({{"prompt":"x",{}}})", fields)).find("this version supports only") !=
          std::string::npos);
}

TEST_CASE("every sampling field lands in the request") {
  const Request r = request_of(
      R"({"prompt":"x","n":3,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":0.25,
          "frequency_penalty":-0.5,"repetition_penalty":1.5,"seed":42,"max_tokens":9,"min_tokens":2,"stop":"a",
          "stop_token_ids":[2,1,2],"include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false,
          "spaces_between_special_tokens":false,"skip_reading_prefix_cache":true,"cache_salt":"team",
          "logit_bias":{"7":1.5,"3":-1000},"allowed_token_ids":[9,8,9],"logprobs":true,"prompt_logprobs":2,
          "logprob_token_ids":[5],"repetition_detection":{"max_pattern_size":4,"min_count":3}})");
  CHECK(r.cache_salt == "team");
  CHECK(r.sampling == SamplingParams{.n = 3,
                                     .temperature = 0.5,
                                     .top_p = 0.9,
                                     .top_k = 40,
                                     .min_p = 0.1,
                                     .presence_penalty = 0.25,
                                     .frequency_penalty = -0.5,
                                     .repetition_penalty = 1.5,
                                     .seed = 42,
                                     .max_tokens = 9,
                                     .min_tokens = 2,
                                     .stop = {"a"},
                                     .stop_token_ids = {2, 1},
                                     .include_stop_str_in_output = true,
                                     .ignore_eos = true,
                                     .skip_special_tokens = false,
                                     .spaces_between_special_tokens = false,
                                     .skip_reading_prefix_cache = true,
                                     .logit_bias = {{3, -100.0f}, {7, 1.5f}},
                                     .allowed_token_ids = {8, 9},
                                     .logprobs = 1,
                                     .prompt_logprobs = 2,
                                     .logprob_token_ids = {5},
                                     .repetition_detection = {.max_pattern_size = 4, .min_count = 3}});
  CHECK(request_of(R"({"prompt":"x","logprobs":false,"prompt_logprobs":true})").sampling.prompt_logprobs == 1);
  CHECK_FALSE(request_of(R"({"prompt":"x","logprobs":false})").sampling.logprobs);
  CHECK_FALSE(request_of(R"({"prompt":"x","detokenize":false})").sampling.detokenize);
  CHECK(encode(codec(), R"({"prompt":"x","detokenize":false})")->answer.return_token_ids);
  CHECK(request_of(R"({"prompt":"x","max_tokens":0,"prompt_logprobs":0})").sampling.max_tokens == 0);
  CHECK(request_of(R"({"prompt":"x","sampling":{"top_k":3}})").sampling.top_k == 3);
  CHECK(error_of(R"({"prompt":"x","top_k":2,"sampling":{"top_k":3}})").find("top_k is given at top level and") !=
        std::string::npos);
  CHECK(error_of(R"({"prompt":"x","sampling":{"topk":3}})").find("did you mean top_k?") != std::string::npos);
}

TEST_CASE("values of the wrong type say what is wanted") {
  CHECK(error_of(R"({"prompt":"x","temperature":"hot"})") ==
        "temperature: in.jsonl:1: temperature is \"hot\"; it must be a number");
  CHECK(error_of(R"({"prompt":"x","stop":[1]})") ==
        "stop: in.jsonl:1: stop is [1]; it must be a string or a list of strings");
  CHECK(error_of(R"({"prompt":"x","stop":""})").find("empty string") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","stop_token_ids":[272]})").find("between 0 and 271") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","ignore_eos":1})").find("it must be true or false") != std::string::npos);
  CHECK(error_of(R"({"id":[1],"prompt":"x"})") == "id: in.jsonl:1: id is [1]; it must be a string or a number");
  CHECK(error_of(R"({"prompt":"x","messages":[{"role":"user","content":"y"}]})").find("both given") !=
        std::string::npos);
  CHECK(error_of(R"({"prompt_token_ids":[1,-1]})").find("prompt_token_ids[1] is -1") != std::string::npos);
  CHECK(error_of(R"([1])") == ": in.jsonl:1: the record is [1]; it must be a JSON object");
}

TEST_CASE("fields of several values say which one is wrong") {
  CHECK(error_of(R"({"prompt":"x","logit_bias":[1]})") ==
        "logit_bias: in.jsonl:1: logit_bias is [1]; it must be an object such as {\"50256\": -100}");
  CHECK(error_of(R"({"prompt":"x","logit_bias":{"a":1}})") ==
        "logit_bias: in.jsonl:1: logit_bias names \"a\"; its keys must be token ids");
  CHECK(error_of(R"({"prompt":"x","logit_bias":{"5":"1"}})") ==
        "logit_bias: in.jsonl:1: logit_bias of token 5 is \"1\"; it must be a number");
  CHECK(error_of(R"({"prompt":"x","logit_bias":{"5":1,"05":2}})") ==
        "logit_bias: in.jsonl:1: logit_bias names token 5 twice");
  for (const char* id : {"999999", "-1", "272"})  // beyond the vocabulary, and in the padding of an output layer
    CHECK(error_of(fmt::format(R"({{"prompt":"x","logit_bias":{{"{}":1}}}})", id)) ==
          fmt::format("logit_bias: in.jsonl:1: logit_bias names token {}; ids go from 0 to 271, the last id of the "
                      "vocabulary",
                      id));
  CHECK(error_of(R"({"prompt":"x","allowed_token_ids":[]})") ==
        "allowed_token_ids: in.jsonl:1: allowed_token_ids is []; it must be a list of at least one token id, or left "
        "out");
  CHECK(error_of(R"({"prompt":"x","trace_decode_token_ids":[]})").starts_with("trace_decode_token_ids: "));
  CHECK(error_of(R"({"prompt":"x","bad_words":["a",""]})") ==
        "bad_words: in.jsonl:1: bad_words[1] is an empty string; give a word");
  CHECK(error_of(R"({"prompt":"x","repetition_detection":{"size":1}})") ==
        "repetition_detection: in.jsonl:1: repetition_detection has \"size\"; its members are max_pattern_size, "
        "min_pattern_size and min_count");
  CHECK(error_of(R"({"prompt":"x","repetition_detection":{"max_pattern_size":1.5}})") ==
        "repetition_detection.max_pattern_size: in.jsonl:1: repetition_detection.max_pattern_size is 1.5; it must be a "
        "whole number");
  for (const char* value : {"true", "1.5", "-2", "\"5\""})
    CHECK(error_of(fmt::format(R"({{"prompt":"x","thinking_token_budget":{}}})", value)) ==
          fmt::format("thinking_token_budget: in.jsonl:1: thinking_token_budget is {}; it must be a whole number of at "
                      "least 0, or -1 for no limit",
                      value));
  CHECK(error_of(R"({"prompt":"x","cache_salt":""})").starts_with("cache_salt: "));
  CHECK(error_of(R"({"prompt":"x","truncate_prompt_tokens":-2})").starts_with("truncate_prompt_tokens: "));
  CHECK(error_of(R"({"prompt":"x","truncation_side":"middle"})") ==
        "truncation_side: in.jsonl:1: truncation_side is \"middle\"; it must be \"left\" or \"right\"");
}

TEST_CASE("the rules of the table hold for rows") {
  CHECK(error_of(R"({"prompt":"x","n":2,"temperature":0})").starts_with("n: in.jsonl:1: n is 2; it must be 1 when"));
  CHECK(error_of(R"({"prompt":"x","min_tokens":17})") ==
        "min_tokens: in.jsonl:1: min_tokens is 17; it must be at most max_tokens, which is 16");
  CHECK(error_of(R"({"prompt":"x","logprobs":21})").find("raise --max-logprobs") != std::string::npos);
  CodecOptions with = options();
  with.max_logprobs = -1;
  CHECK(error_of(R"({"prompt":"x","logprobs":-1})", with).empty());
  CHECK(error_of(R"({"prompt":"x","max_tokens":0})").find("or 0 with prompt_logprobs") != std::string::npos);
}

TEST_CASE("a trace sets the length of the answer, unless the row or the job does") {
  CHECK(request_of(R"({"prompt":"x","trace_decode_token_ids":[1,2,3]})").sampling.max_tokens == 3);
  CHECK(request_of(R"({"prompt":"x","trace_decode_token_ids":[1,2,3],"max_tokens":7})").sampling.max_tokens == 7);
}

TEST_CASE("a column that must be a misspelt field is an error until --passthrough names it") {
  CHECK(
      error_of(R"({"prompt":"x","temprature":0})") ==
      "temprature: in.jsonl:1: temprature is not a field of rows; did you mean temperature? (--passthrough temprature "
      "if it is a column of yours)");
  for (const char* name : {"topk", "top-k", "TopP", "maxTokens", "max_token", "max_tokns", "max_tokesn", "logprob",
                           "bad_word", "return_token_id", "Temperature", "N", "Seed"})
    CHECK_MESSAGE(!misspelt_field(name).empty(), name);
  for (const auto& [name, meant] :
       {std::pair("best-of", "best_of"), std::pair("bestOf", "best_of"), std::pair("seeds", "seed"),
        std::pair("stops", "stop"), std::pair("echo_", "echo"), std::pair("top k", "top_k"),
        std::pair("guided-json", "guided_json"), std::pair("addGenerationPrompt", "add_generation_prompt"),
        std::pair("num-beams", "num_beams"), std::pair("stopSequences", "stop"), std::pair("stop_sequence", "stop"),
        std::pair("max.new.tokens", "max_tokens"), std::pair("Documents", "documents"), std::pair("logprobs_", "logprobs")})
    CHECK_MESSAGE(misspelt_field(name) == meant, name);
  for (const char* name : {"text", "topic", "top", "ns", "message", "document", "tool", "model", "streams", "n\u00e9",
                           "label", "score", "tokens", "temp", "max", "token_ids"})
    CHECK_MESSAGE(misspelt_field(name).empty(), name);
  CodecOptions with = options();
  with.passthrough = {"temprature"};
  CHECK(error_of(R"({"prompt":"x","temprature":0})", with).empty());
}

TEST_CASE("sampling parameters of other programs are errors that say what comes near, unless they are declared columns") {
  for (const char* name :
       {"sampling_params", "extra_body", "generation_config", "parameters", "do_sample", "num_beams", "stop_sequences",
        "no_repeat_ngram_size", "num_return_sequences", "typical_p", "max_length", "eos_token_id", "bad_words_ids",
        "suppress_tokens", "return_full_text", "decoder_input_details", "json_schema", "regex", "mirostat"}) {
    const std::string row = fmt::format(R"({{"prompt":"x","{}":[7]}})", name);
    CHECK_MESSAGE(error_of(row).starts_with(fmt::format("{0}: in.jsonl:1: {0} is [7]; this version", name)), name);
    CodecOptions with = options();
    with.passthrough = {name};
    CHECK_MESSAGE(error_of(row, with).empty(), name);
    CHECK_MESSAGE(!error_of(fmt::format(R"({{"prompt":"x","sampling":{{"{}":[7]}}}})", name), with).empty(), name);
    const std::string body =
        fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/completions","body":{{"prompt":"x","{}":[7]}}}})", name);
    CHECK_MESSAGE(error_of(body, with).find("this version") != std::string::npos, name);
  }
  CHECK(error_of(R"({"prompt":"x","do_sample":false})").find("temperature says it: 0 is greedy") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","num_beams":1,"no_repeat_ngram_size":0,"extra_body":{},"pad_token_id":0})").empty());
  CodecOptions with = options();
  with.passthrough = {"best_of"};  // a field of rows stays one
  CHECK_FALSE(error_of(R"({"prompt":"x","best_of":2})", with).empty());
}

TEST_CASE("a neutral value has its field's type") {
  for (const char* value : {"[]", "{}"})
    CHECK(error_of(fmt::format(R"({{"prompt":"x","suffix":{}}})", value)).find("only \"\"") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","suffix":""})").empty());
}

TEST_CASE("defaults are read as rows are, and rows win") {
  CodecOptions with = options();
  read_settings(io::parse_json(R"({"temperature":0.5,"n":2,"stop":["a"],"logprobs":3,"bad_words":["b"]})", "d"),
                with.defaults);
  const Request r = request_of(R"({"prompt":"x","stop":["c"],"logprobs":false})", with);
  CHECK(r.sampling.temperature == 0.5);
  CHECK(r.sampling.n == 2);
  CHECK(r.sampling.stop == std::vector<std::string>{"c"});
  CHECK_FALSE(r.sampling.logprobs);
  CHECK(r.sampling.bad_words == std::vector<std::vector<int32_t>>{{98}});
  CHECK_THROWS_AS(read_settings(io::parse_json(R"({"temprature":1})", "d"), with.defaults), BadRow);
}

TEST_CASE("lists of the job's defaults, which may be as long as the vocabulary, are not copied for each row") {
  CodecOptions with = options();
  with.defaults.sampling.allowed_token_ids = {97, 98};
  with.defaults.sampling.logit_bias = {{97, 2.0f}};
  const Codec c = codec(with);
  const SamplingParams first = encode(c, R"({"prompt":"a"})")->request.sampling;
  const SamplingParams second = encode(c, R"({"prompt":"b","temperature":0})")->request.sampling;
  CHECK(&first.allowed_token_ids[0] == &second.allowed_token_ids[0]);
  CHECK(&first.logit_bias[0] == &second.logit_bias[0]);
  const SamplingParams own = encode(c, R"({"prompt":"b","allowed_token_ids":[97]})")->request.sampling;
  CHECK(own.allowed_token_ids == SharedList<int32_t>{97});
  CHECK(&own.logit_bias[0] == &second.logit_bias[0]);
}

TEST_CASE("max_tokens: 16 for plain prompts, what is left for chats, the job's value for both") {
  const char* chat = R"({"messages":[{"role":"user","content":"x"}]})";
  CHECK(request_of(R"({"prompt":"x"})").sampling.max_tokens == 16);
  CHECK(request_of(R"({"prompt":"x","max_tokens":null})").sampling.max_tokens == 16);
  CHECK_FALSE(request_of(chat).sampling.max_tokens);
  CodecOptions with = options();
  with.defaults.sampling.max_tokens = 5;
  CHECK(request_of(R"({"prompt":"x"})", with).sampling.max_tokens == 5);
  CHECK(request_of(chat, with).sampling.max_tokens == 5);
  CHECK(request_of(R"({"prompt":"x","max_tokens":7})", with).sampling.max_tokens == 7);
}
