#include "app/row_defaults.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "kernels/core/error.h"
#include "tests/app/rows/rows_fixture.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

namespace {

/// tiny-llama's files with a generation_config.json of this text.
struct Model {
  explicit Model(const std::string& generation_config) {
    const std::filesystem::path from = std::string(TM_TEST_DATA) + "/models/tiny-llama";
    for (const auto& entry : std::filesystem::directory_iterator(from))
      std::filesystem::copy(entry.path(), dir.path() + "/" + entry.path().filename().string(),
                            std::filesystem::copy_options::overwrite_existing);
    std::ofstream(dir.path() + "/generation_config.json", std::ios::trunc) << generation_config;
  }
  rows::RowSettings defaults(const char* job = "{}", bool use_generation_config = true) const {
    app::RunOptions options;
    options.sampling = io::parse_json(job, "job");
    options.use_generation_config = use_generation_config;
    return app::row_defaults(options, Checkpoint(dir.path()), 256);
  }
  std::string error(const char* job = "{}") const {
    try {
      (void)defaults(job);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  test::TempDir dir;
};

}  // namespace

TEST_CASE("the job's fields stand over the model's") {
  const Model model(R"({"eos_token_id":3,"temperature":0.6,"top_k":20,"repetition_penalty":1.05,"max_new_tokens":99,)"
                    R"("min_new_tokens":2})");
  const SamplingParams both = model.defaults(R"({"top_k":5,"logprobs":1})").sampling;
  CHECK(both == SamplingParams{.temperature = 0.6,
                               .top_k = 5,
                               .repetition_penalty = 1.05,
                               .max_tokens = 99,
                               .min_tokens = 2,
                               .logprobs = 1});
  CHECK(model.defaults("{}", false).sampling == SamplingParams{});
}

TEST_CASE("defaults that no row could use stop the job and name where they stand") {
  const Model plain(R"({"eos_token_id":3})");
  CHECK(plain.error(R"({"logit_bias":{"411":1}})") ==
        "--logit-bias: logit_bias names token 411; ids go from 0 to 410, the last id of the vocabulary");
  CHECK(plain.error(R"({"n":2,"temperature":0})").starts_with("--n: n is 2; it must be 1 when temperature is 0"));
  CHECK(plain.error(R"({"logprobs":21})").starts_with("--logprobs: logprobs is 21; at most 20 are allowed"));
  CHECK(plain.error(R"({"max_tokens":0})")
            .starts_with("--max-tokens: max_tokens is 0; it must be at least 1, or 0 with "
                         "prompt_logprobs"));
  CHECK(
      plain.error(R"({"max_tokens":0,"prompt_logprobs":1,"n":2})").starts_with("--n: n is 2; it must be 1 when max_"));
  CHECK(plain.error(R"({"max_tokens":0,"prompt_logprobs":1})") == "");
  CHECK(Model(R"({"temperature":7})").error() ==
        "the model's generation_config.json: temperature is 7; it must be between 0 and 2; --generation-config none "
        "leaves "
        "the file out");
  CHECK(Model(R"({"no_repeat_ngram_size":3})").error().find("asks for no_repeat_ngram_size 3") != std::string::npos);
  CHECK(Model(R"({"eos_token_id":411})").error().find("eos_token_id is 411; it must be between 0 and 410") !=
        std::string::npos);
}

TEST_CASE("what rows may not ask for is refused in the job's options at the start, by the rules of rows") {
  const Model plain(R"({"eos_token_id":3})");
  CHECK(plain.error(R"({"truncate_prompt_tokens":257})") ==
        "--truncate-prompt-tokens: truncate_prompt_tokens is 257; it must be at most 256, the model's length");
  CHECK(plain.error(R"({"truncate_prompt_tokens":256})") == "");
  CHECK(plain.error(R"({"truncate_prompt_tokens":-1})") == "");
  const text::Tokenizer& tokenizer = test::tiny_tokenizer();
  const auto words = [&](rows::RowSettings settings, const rows::ThinkingMarkers& thinking = {}) -> std::string {
    try {
      app::check_words(settings, tokenizer, thinking, tokenizer.vocab_size());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(words({.bad_words = {"a", "  "}}) == "--bad-words: bad_words[1] is \"  \", which has no token in this vocabulary");
  CHECK(words({.bad_words = std::vector<std::string>(129, "a")}).starts_with("--bad-words: bad_words give "));
  CHECK(words({.bad_words = {"a"}}) == "");
  CHECK(words({.thinking_token_budget = 5}).starts_with("--thinking-token-budget: thinking_token_budget is 5; the model's"));
  CHECK(words({.thinking_token_budget = 5}, {{270}, {271}}) == "");
}
