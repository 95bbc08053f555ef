#include "app/rows/logprobs.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

LogprobWriter writer(bool tokens_as_ids = false) { return LogprobWriter(tiny_tokenizer(), tokens_as_ids); }

template <typename... Arguments>
std::string written(void (LogprobWriter::*append)(std::string&, Arguments...) const, const LogprobWriter& with,
                    Arguments... arguments) {
  std::string out;
  (with.*append)(out, arguments...);
  (void)io::parse_json(out, "logprobs");
  return out;
}

}  // namespace

TEST_CASE("scores that JSON cannot hold are null, in every shape") {
  const std::vector<PositionLogprobs> positions = {
      {{97, -kInfinity, 272}, {98, std::numeric_limits<float>::quiet_NaN(), 1}, {99, kInfinity, 1}}};
  const LogprobWriter::Positions span = positions;
  for (const std::string& text :
       {written(&LogprobWriter::append_native, writer(), span, false),
        written(&LogprobWriter::append_flat, writer(), span, false),
        written(&LogprobWriter::append_chat, writer(), span), written(&LogprobWriter::append_prompt, writer(), span)}) {
    CHECK(text.find("inf") == std::string::npos);
    CHECK(text.find("nan") == std::string::npos);
    CHECK(text.find("null") != std::string::npos);
  }
}

TEST_CASE("chat logprobs show every byte of a token") {
  const std::vector<PositionLogprobs> positions = {{{0xc3, -0.1f, 1}, {0xa4, -2.5f, 2}}, {{271, -1e-5f, 1}}};
  CHECK(written(&LogprobWriter::append_chat, writer(), LogprobWriter::Positions(positions)) ==
        "{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.1,\"bytes\":[195],\"top_logprobs\":["
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-2.5,\"bytes\":[164]}]},"
        "{\"token\":\"<|end|>\",\"logprob\":-1e-05,\"bytes\":[60,124,101,110,100,124,62],\"top_logprobs\":[]}]}");
  CHECK(written(&LogprobWriter::append_chat, writer(), LogprobWriter::Positions()) == R"({"content":[]})");
}

TEST_CASE("completion logprobs count characters, and texts that tokens share stand once") {
  // "a", the two bytes of "ä", "b": the second byte begins where the character will.
  const std::vector<PositionLogprobs> positions = {
      {{97, -1.0f, 1}}, {{0xc3, -1.0f, 2}, {0xa4, -0.5f, 1}}, {{0xa4, -2.0f, 1}}, {{98, -3.0f, 5}, {99, -0.25f, 1}}};
  const LogprobWriter::Completion completion{{}, {}, positions, true};
  CHECK(written<const LogprobWriter::Completion&>(&LogprobWriter::append_completion, writer(), completion) ==
        "{\"tokens\":[\"a\",\"\xef\xbf\xbd\",\"\xef\xbf\xbd\",\"b\"],\"token_logprobs\":[-1,-1,-2,-3],"
        "\"top_logprobs\":[{\"a\":-1},{\"\xef\xbf\xbd\":-0.5},{\"\xef\xbf\xbd\":-2},{\"c\":-0.25,\"b\":-3}],"
        "\"text_offset\":[0,1,1,2]}");
}

TEST_CASE("tokens may be shown by their ids") {
  const std::vector<PositionLogprobs> positions = {{{97, -1.0f, 1}}};
  CHECK(written(&LogprobWriter::append_native, writer(true), LogprobWriter::Positions(positions), true) ==
        R"([null,{"id":97,"token":"token_id:97","logprob":-1,"rank":1}])");
  const LogprobWriter::Completion completion{{}, {}, positions, true};
  CHECK(written<const LogprobWriter::Completion&>(&LogprobWriter::append_completion, writer(true), completion)
            .find(R"("top_logprobs":[{"token_id:97":-1}])") != std::string::npos);
}
