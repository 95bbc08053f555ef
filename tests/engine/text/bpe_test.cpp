#include "engine/text/bpe.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/engine/text/fixture.h"

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

/// The definition: again and again, the best-ranked neighbours merge, the leftmost among equals.
std::vector<std::string> merge_plainly(std::vector<std::string> symbols,
                                       const std::map<std::pair<std::string, std::string>, size_t>& ranks) {
  while (true) {
    size_t best_rank = ranks.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ranks.find({symbols[i], symbols[i + 1]});
      if (it != ranks.end() && it->second < best_rank) {
        best_rank = it->second;
        best = i;
      }
    }
    if (best_rank == ranks.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("pieces of any length merge as the definition says") {
  const io::JsonValue json = fixture::tokenizer_json("gpt2");
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  std::vector<Merge> merges;
  std::vector<std::pair<std::string, int64_t>> entries;
  for (const auto& [token, id] : json.at("model").at("vocab").members()) entries.emplace_back(token, id.as_int64());
  Vocabulary vocabulary = Vocabulary::build(entries, "gpt2");
  for (const io::JsonValue& pair : json.at("model").at("merges").items()) {
    const std::string left = pair.items()[0].as_string();
    const std::string right = pair.items()[1].as_string();
    merges.push_back({vocabulary.find(left).value(), vocabulary.find(right).value(),
                      static_cast<uint32_t>(ranks.size()), vocabulary.find(left + right).value()});
    ranks.emplace(std::pair(left, right), ranks.size());
  }
  const BpeModel model(std::move(vocabulary), merges, BpeOptions{});
  BpeWorkspace workspace;
  std::mt19937 random(9);
  const std::string letters = "etaoinshr";  // they merge often, in conflicting ways
  for (const int length : {1, 2, 3, 7, 30, 63, 64, 65, 66, 100, 129, 300}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::string> symbols;
      std::string word;
      for (int i = 0; i < length; ++i) {
        symbols.emplace_back(1, letters[random() % (round < 5 ? 2 : letters.size())]);
        word += symbols.back();
      }
      CAPTURE(word);
      std::vector<int32_t> expected;
      for (const std::string& token : merge_plainly(symbols, ranks))
        expected.push_back(model.vocabulary().find(token).value());
      for (int again = 0; again < 2; ++again) {  // the second time from the cache
        std::vector<int32_t> ids;
        model.encode(word, workspace, ids);
        CHECK(ids == expected);
      }
    }
  }
}

TEST_CASE("a word cache forgets rather than grows, and never mixes words up") {
  WordCache cache;
  for (int round = 0; round < 400000; ++round) {
    const std::string word = "word" + std::to_string(round);
    const std::vector<int32_t> ids = {round, round + 1};
    cache.insert(word, WordCache::hash(word), ids);
    const auto found = cache.find(word, WordCache::hash(word));
    REQUIRE(found.size() == 2);
    REQUIRE(found[0] == round);
  }
  // Equal hash values with different words: not found, not confused.
  cache.insert("left", 42, std::vector<int32_t>{1});
  CHECK(cache.find("righ", 42).data() == nullptr);
  CHECK(cache.find("left", 42)[0] == 1);
  const std::string long_word(WordCache::kMaxWordBytes + 1, 'x');
  cache.insert(long_word, 7, std::vector<int32_t>{1});
  CHECK(cache.find(long_word, 7).data() == nullptr);
}
