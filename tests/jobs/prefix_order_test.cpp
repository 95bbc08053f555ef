#include "jobs/prefix_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tokenmill::jobs {
namespace {

std::string text(std::mt19937_64& random, size_t bytes) {
  std::string out(bytes, ' ');
  for (char& c : out) c = static_cast<char>('a' + random() % 26);
  return out;
}

PrefixOrder order_of(const std::vector<std::string>& prompts) {
  PrefixFingerprints fingerprints;
  for (const std::string& prompt : prompts) fingerprints.add(prompt);
  CHECK(fingerprints.num_rows() == static_cast<int64_t>(prompts.size()));
  return fingerprints.order();
}

std::vector<uint32_t> rows_of(const std::vector<std::string>& prompts) { return order_of(prompts).rows; }

TEST_CASE("rows that share nothing keep their order, whatever their lengths") {
  std::mt19937_64 random(1);
  std::vector<std::string> prompts;
  for (int i = 0; i < 3000; ++i) prompts.push_back(text(random, 10 + random() % 3000));
  for (int i = 0; i < 5; ++i) prompts[static_cast<size_t>(random() % 3000)].clear();
  const PrefixOrder order = order_of(prompts);
  CHECK(std::is_sorted(order.rows.begin(), order.rows.end()));
  CHECK(std::all_of(order.shared.begin(), order.shared.end(), [](uint8_t n) { return n == 0; }));
}

TEST_CASE("rows of one beginning become neighbours, in the order in which their groups first occur") {
  std::mt19937_64 random(2);
  const std::string a = text(random, 130), b = text(random, 2000);
  const auto tail = [&] { return text(random, 40); };
  CHECK(rows_of({tail(), b + tail(), a + tail(), tail(), b + tail(), a + tail(), b + tail()}) ==
        std::vector<uint32_t>{0, 1, 4, 6, 2, 5, 3});
}

TEST_CASE("a shared beginning is found at any depth, under a longer one that all rows share") {
  std::mt19937_64 random(3);
  const std::string system = text(random, 4096);
  for (const size_t document_bytes : {300, 1500, 9000, 60'000}) {
    std::vector<std::string> documents, prompts;
    for (int i = 0; i < 12; ++i) documents.push_back(text(random, document_bytes));
    std::vector<size_t> document_of;
    for (int i = 0; i < 240; ++i) {
      document_of.push_back(random() % 12);
      prompts.push_back(system + documents[document_of.back()] + text(random, 50));
    }
    const PrefixOrder order = order_of(prompts);
    int changes = 0;
    for (size_t place = 1; place < 240; ++place) {
      const bool same = document_of[order.rows[place]] == document_of[order.rows[place - 1]];
      changes += same ? 0 : 1;
      CHECK(order.shared[place] >= 17);  // 128, 256, 512, 768, ... 4096
      CHECK((order.shared[place] > 17) == same);
    }
    CHECK(changes == 11);
  }
}

TEST_CASE("equal prompts become neighbours and share everything") {
  std::mt19937_64 random(4);
  const std::string a = "short", b = text(random, 128), c = text(random, 700);
  const PrefixOrder order = order_of({a, b, c, c + "x", b, a, c});
  CHECK(order.rows == std::vector<uint32_t>{0, 5, 1, 4, 2, 6, 3});
  CHECK(order.shared == std::vector<uint8_t>{0, 1, 0, 2, 0, 4, 3});
}

TEST_CASE("the order is a permutation in which every shared beginning is one stretch") {
  std::mt19937_64 random(5);
  std::vector<std::string> heads, prompts;
  for (int i = 0; i < 10; ++i) heads.push_back(text(random, 256));
  for (int i = 0; i < 2000; ++i) {
    std::string prompt;
    for (int depth = static_cast<int>(random() % 5); depth > 0; --depth) prompt += heads[random() % heads.size()];
    prompts.push_back(prompt + text(random, random() % 20));
  }
  const std::vector<uint32_t> rows = rows_of(prompts);
  std::vector<uint32_t> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < 2000; ++i) REQUIRE(sorted[i] == i);
  for (const size_t length : {256, 512, 768, 1024}) {
    std::map<std::string, int> stretches;
    std::string last;
    for (const uint32_t row : rows) {
      const std::string head = prompts[row].size() >= length ? prompts[row].substr(0, length) : "";
      if (head != last && !head.empty()) ++stretches[head];
      last = head;
    }
    for (const auto& [head, count] : stretches) CHECK(count == 1);
  }
}

}  // namespace
}  // namespace tokenmill::jobs
