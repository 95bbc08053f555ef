#include "app/rank_plan.h"

#include <doctest/doctest.h>

#include "app/options.h"

namespace tokenmill::app {
namespace {

TEST_CASE("rows with penalties share 256 MiB of tables, unless all rows have some") {
  RunOptions options;
  options.max_num_seqs = 256;
  CHECK(choose_max_adjusted(options, {}, 49152) == 256);   // 96 MiB
  CHECK(choose_max_adjusted(options, {}, 262144) == 128);  // 2 MiB each
  CHECK(choose_max_adjusted(options, {}, 100'000'000) == 1);
  CHECK(choose_max_adjusted(options, {.repetition_penalty = 1.1}, 262144) == 256);
  options.use_generation_config = false;
  CHECK(choose_max_adjusted(options, {.repetition_penalty = 1.1}, 262144) == 128);
  for (const char* sampling : {R"({"logit_bias":{"5":1}})", R"({"bad_words":["a"]})", R"({"frequency_penalty":0.5})"}) {
    options.sampling = io::parse_json(sampling, "sampling");
    CHECK(choose_max_adjusted(options, {}, 262144) == 256);
  }
  options.sampling = io::parse_json(R"({"temperature":0,"logit_bias":null})", "sampling");
  CHECK(choose_max_adjusted(options, {}, 262144) == 128);
}

}  // namespace
}  // namespace tokenmill::app
