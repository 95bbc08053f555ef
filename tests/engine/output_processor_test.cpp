#include "engine/output_processor.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "tests/support/fake_decoder.h"

namespace tokenmill {
namespace {

std::shared_ptr<const SamplingParams> shared(SamplingParams params) {
  return std::make_shared<const SamplingParams>(std::move(params));
}

using Strings = std::vector<std::string>;
using Ids = std::vector<int32_t>;

/// Feeds ids 0, 1, 2, ... whose texts are `pieces` until the sequence ends.
SequenceOutput run(const Strings& pieces, const SamplingParams& sampling, int64_t max_tokens = 100,
                   const Ids& eos = {}) {
  OutputProcessor processor(shared(sampling), eos, max_tokens, std::make_unique<test::FakeDecoder>(pieces));
  for (int32_t id = 0; id < static_cast<int32_t>(pieces.size()); ++id) {
    if (processor.append({id, -0.5f, SampleStatus::kFine})) return processor.take();
  }
  FAIL("the sequence did not end");
  return {};
}

std::string stop_string(const SequenceOutput& output) {
  const std::string* text = std::get_if<std::string>(&output.stop_reason);
  return text == nullptr ? "" : *text;
}

TEST_CASE("a stop text across two tokens cuts the text before it") {
  const SequenceOutput output = run({"xa", "b|y", "z"}, {.stop = {"ab|"}});
  CHECK(output.text == "x");
  CHECK(output.token_ids == Ids{0, 1});
  CHECK(output.finish_reason == FinishReason::kStop);
  CHECK(stop_string(output) == "ab|");
  CHECK(output.cumulative_logprob == -1.0);
}

TEST_CASE("the stop text is kept when asked for, and nothing after it") {
  CHECK(run({"xa", "b|y"}, {.stop = {"ab|"}, .include_stop_str_in_output = true}).text == "xab|");
}

TEST_CASE("a partial match is released when generation ends by length") {
  const SequenceOutput output = run({"xa", "b|y"}, {.stop = {"ab|"}}, 1);
  CHECK(output.text == "xa");
  CHECK(output.finish_reason == FinishReason::kLength);
  CHECK(output.stop_reason == StopReason());
}

TEST_CASE("of several stop texts the one that starts first counts, of those the shortest") {
  struct Case {
    const char* name;
    Strings pieces;
    Strings stop;
    std::string text, reason;
  };
  const std::vector<Case> cases = {
      {"later in the list, earlier in the text", {"a.b!c"}, {"!", "."}, "a", "."},
      {"inside another that starts earlier", {"xabcdy"}, {"bc", "abcd"}, "x", "abcd"},
      {"same start, listed longest first", {"xabc"}, {"abc", "ab"}, "x", "ab"},
      {"same start, listed shortest first", {"xabc"}, {"ab", "abc"}, "x", "ab"},
      {"complete one ends before the longer is complete", {"xabc", "d"}, {"abcd", "c"}, "xab", "c"},
      {"self-overlapping", {"aa", "ab"}, {"aab"}, "a", "aab"},
      {"over three tokens", {"x<", "|", ">y"}, {"<|>"}, "x", "<|>"},
      {"at the very start", {"END"}, {"END"}, "", "END"},
      {"several bytes per character", {"na", "\xc3\xaf", "ve"}, {"\xc3\xafv"}, "na", "\xc3\xafv"},
      {"repeated beginnings", {"ababa", "bac"}, {"ababac"}, "ab", "ababac"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const SequenceOutput output = run(c.pieces, {.stop = c.stop});
    CHECK(output.text == c.text);
    CHECK(stop_string(output) == c.reason);
    const SequenceOutput kept = run(c.pieces, {.stop = c.stop, .include_stop_str_in_output = true});
    CHECK(kept.text == c.text + c.reason);
  }
}

TEST_CASE("an end token ends the sequence, stays in the ids and out of the text") {
  const SequenceOutput output = run({"a", "</s>", "b"}, {}, 100, {7, 1});
  CHECK(output.text == "a");
  CHECK(output.token_ids == Ids{0, 1});
  CHECK(output.finish_reason == FinishReason::kStop);
  CHECK(output.stop_reason == StopReason());
  CHECK(run({"a", "</s>"}, {.include_stop_str_in_output = true}, 100, {1}).text == "a</s>");
}

TEST_CASE("ignore_eos runs to the limit, and an explicit stop id still ends") {
  const SequenceOutput length = run({"a", "<e>", "b"}, {.ignore_eos = true}, 3, {1});
  CHECK(length.text == "a<e>b");
  CHECK(length.finish_reason == FinishReason::kLength);
  const SequenceOutput stop = run({"a", "<e>", "b"}, {.stop_token_ids = {1}, .ignore_eos = true}, 3, {1});
  CHECK(stop.text == "a");
  CHECK(stop.token_ids == Ids{0, 1});
  CHECK(stop.finish_reason == FinishReason::kStop);
  CHECK(stop.stop_reason == StopReason(1));
}

TEST_CASE("an id that is both an end token and a stop id counts as the end token") {
  CHECK(run({"a"}, {.stop_token_ids = {0}}, 3, {0}).stop_reason == StopReason());
}

TEST_CASE("stopping wins over the length limit at the same token") {
  CHECK(run({"a", "b"}, {.stop = {"b"}}, 2).finish_reason == FinishReason::kStop);
  CHECK(run({"a", "b"}, {.stop_token_ids = {1}}, 2).finish_reason == FinishReason::kStop);
  CHECK(run({"a", "b"}, {}, 2, {1}).finish_reason == FinishReason::kStop);
}

TEST_CASE("what an unfinished character holds back is released at the end and searched for stop texts") {
  CHECK(run({"a~"}, {}, 1).text == "a?");
  CHECK(run({"a~", "b"}, {}, 2).text == "ab");
  CHECK(run({"a~", "</s>"}, {}, 9, {1}).text == "a?");
  const SequenceOutput output = run({"xa~"}, {.stop = {"a?"}}, 1);
  CHECK(output.text == "x");
  CHECK(output.finish_reason == FinishReason::kStop);
}

TEST_CASE("before min_tokens neither end tokens, stop ids, stop texts nor repetition end a sequence") {
  CHECK(run({"a", "</s>", "b"}, {.min_tokens = 3}, 3, {1}).finish_reason == FinishReason::kLength);
  CHECK(run({"a", "</s>", "b"}, {.min_tokens = 2}, 3, {1}).token_ids == Ids{0, 1});
  CHECK(run({"a", "</s>", "b"}, {.min_tokens = 3, .stop_token_ids = {1}}, 3).finish_reason == FinishReason::kLength);
  const SequenceOutput late = run({"xa", "b|", "y", "ab|z"}, {.min_tokens = 2, .stop = {"ab|"}});
  CHECK(late.text == "xab|y");
  CHECK(late.token_ids == Ids{0, 1, 2, 3});
  CHECK(run({"xa", "b|", "y"}, {.min_tokens = 1, .stop = {"ab|"}}).text == "x");  // begins in, ends behind it
  CHECK(run({"xa", "b|", "y"}, {.min_tokens = 2, .stop = {"b|y"}}).text == "xa");
}

TEST_CASE("a sequence that repeats itself ends, unless its length does first") {
  const RepetitionDetection twice{.max_pattern_size = 2, .min_pattern_size = 2, .min_count = 2};
  const auto finish = [&](const Ids& ids, int64_t min_tokens, int64_t max_tokens) {
    OutputProcessor processor(shared({.min_tokens = min_tokens, .repetition_detection = twice}), {}, max_tokens,
                              nullptr);
    for (const int32_t id : ids)
      if (processor.append({id, -1, SampleStatus::kFine})) return processor.take();
    FAIL("the sequence did not end");
    return SequenceOutput();
  };
  const SequenceOutput output = finish({9, 5, 6, 5, 6, 5, 6}, 0, 100);
  CHECK(output.finish_reason == FinishReason::kRepetition);
  CHECK(output.token_ids == Ids{9, 5, 6, 5, 6});
  CHECK(output.stop_reason == StopReason());
  CHECK(finish({9, 5, 6, 5, 6, 5, 6}, 6, 100).token_ids.size() == 6);
  CHECK(finish({9, 5, 6, 5, 6}, 0, 5).finish_reason == FinishReason::kLength);
}

TEST_CASE("without a decoder there are ids and no text") {
  OutputProcessor processor(shared({}), {}, 2, nullptr);
  CHECK_FALSE(processor.append({5, -1, SampleStatus::kFine}));
  CHECK(processor.append({6, -2, SampleStatus::kFine}));
  const SequenceOutput output = processor.take();
  CHECK(output.text.empty());
  CHECK(output.token_ids == Ids{5, 6});
  CHECK(output.cumulative_logprob == -3);
}

TEST_CASE("no token is taken after the end") {
  OutputProcessor processor(shared({}), {}, 1, nullptr);
  CHECK(processor.append({5, -1, SampleStatus::kFine}));
  CHECK_THROWS_AS(processor.append({5, -1, SampleStatus::kFine}), Error);
}

}  // namespace
}  // namespace tokenmill
