#include "engine/prefix_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace tokenmill {
namespace {

using Pages = std::vector<uint64_t>;

std::vector<int64_t> drain(PrefixPlan& plan) {
  std::vector<int64_t> order;
  while (!plan.empty()) {
    const int64_t ticket = plan.front();
    CHECK(plan.front() == ticket);
    plan.pop();
    order.push_back(ticket);
  }
  return order;
}

TEST_CASE("without shared pages the longest goes first, among equals the first") {
  PrefixPlan plan;
  plan.add(Pages{1}, 10);
  plan.add(Pages{2}, 30);
  plan.add({}, 20);
  plan.add(Pages{3, 4, 5}, 30);
  plan.add(Pages{6}, 10);
  CHECK(plan.size() == 5);
  CHECK(drain(plan) == std::vector<int64_t>{1, 3, 2, 0, 4});
}

TEST_CASE("a subtree is finished before the next begins; the one with the longest item comes first") {
  PrefixPlan plan;
  plan.add(Pages{1, 2, 3}, 5);
  plan.add(Pages{7, 8}, 40);
  plan.add(Pages{1, 2, 4}, 50);
  plan.add(Pages{7, 9}, 1);
  plan.add(Pages{1, 5}, 45);
  plan.add(Pages{1, 2}, 3);
  CHECK(drain(plan) == std::vector<int64_t>{2, 0, 5, 4, 1, 3});
  CHECK(plan.num_nodes() <= 3);  // the path of the last one
}

TEST_CASE("the walk stays in its subtree when new items arrive there, even after it has run empty") {
  PrefixPlan plan;
  plan.add(Pages{1, 2, 3}, 100);
  plan.add(Pages{9}, 99);
  plan.front();
  plan.pop();
  plan.add(Pages{1, 2, 4}, 1);  // splits the node where the walk stands
  plan.add(Pages{8}, 1000);
  plan.add(Pages{1, 2}, 2);
  CHECK(drain(plan) == std::vector<int64_t>{4, 2, 3, 1});
}

TEST_CASE("what front shows stays there until it is taken") {
  PrefixPlan plan;
  plan.add(Pages{1}, 1);
  CHECK(plan.front() == 0);
  plan.add(Pages{1}, 50);
  plan.add(Pages{2}, 60);
  CHECK(plan.front() == 0);
  CHECK(drain(plan) == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("an item that many later ones have overtaken goes first") {
  PrefixPlan plan(10);
  plan.add(Pages{5}, 1);
  for (int i = 0; i < 15; ++i) plan.add(Pages{1, static_cast<uint64_t>(100 + i)}, 50);
  std::vector<int64_t> order;
  for (int i = 0; i < 15; ++i) {
    order.push_back(plan.front());
    plan.pop();
    plan.add(Pages{1, static_cast<uint64_t>(200 + i)}, 60);  // they would go on for ever
  }
  CHECK(std::find(order.begin(), order.end(), 0) - order.begin() == 10);
}

/// Random items over a small alphabet: many shared beginnings of all depths.
Pages some_pages(std::mt19937_64& random) {
  Pages pages;
  uint64_t hash = 0;
  for (auto depth = random() % 7; depth > 0; --depth) {
    hash = hash * 10 + 1 + random() % 3;
    pages.push_back(hash);
  }
  return pages;
}

TEST_CASE("all items at once: every shared beginning is one stretch of the order") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    PrefixPlan plan;
    std::vector<Pages> items;
    for (int i = 0; i < 200; ++i) {
      items.push_back(some_pages(random));
      CHECK(plan.add(items.back(), static_cast<int64_t>(random() % 5)) == i);
    }
    const std::vector<int64_t> order = drain(plan);
    REQUIRE(order.size() == 200);
    std::map<uint64_t, int> stretches;
    std::set<uint64_t> last;
    for (const int64_t ticket : order) {
      const Pages& pages = items[static_cast<size_t>(ticket)];
      for (const uint64_t page : pages)
        if (!last.contains(page)) ++stretches[page];
      last = {pages.begin(), pages.end()};
    }
    for (const auto& [page, count] : stretches) CHECK(count == 1);
    CHECK(plan.num_nodes() <= 8);
  }
}

TEST_CASE("items come and go at random: each is taken once, and what is shared with the last one is shared on") {
  std::mt19937_64 random(4);
  PrefixPlan plan(1 << 20);
  std::map<int64_t, Pages> waiting;
  Pages last;
  for (int i = 0; i < 20'000; ++i) {
    if (waiting.size() < 100 && random() % 2 == 0) {
      Pages pages = some_pages(random);
      const int64_t ticket = plan.add(pages, static_cast<int64_t>(random() % 9));
      waiting[ticket] = std::move(pages);
      continue;
    }
    REQUIRE(plan.size() == static_cast<int64_t>(waiting.size()));
    if (waiting.empty()) continue;
    const auto shared = [&](const Pages& pages) {
      return std::mismatch(pages.begin(), pages.end(), last.begin(), last.end()).first - pages.begin();
    };
    std::ptrdiff_t best = 0;
    for (const auto& [ticket, pages] : waiting) best = std::max(best, shared(pages));
    const auto taken = waiting.find(plan.front());
    REQUIRE(taken != waiting.end());
    CHECK(shared(taken->second) == best);
    plan.pop();
    last = taken->second;
    waiting.erase(taken);
  }
}

}  // namespace
}  // namespace tokenmill
