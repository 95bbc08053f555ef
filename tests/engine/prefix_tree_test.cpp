#include "engine/prefix_tree.h"

#include <doctest/doctest.h>

#include <set>

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("a path is found again by its tokens and its identity") {
  PrefixTree tree(2, 1);
  PrefixNode* root = tree.root({});
  PrefixNode* one = tree.child(*root, Ids{1, 2});
  PrefixNode* two = tree.child(*one, Ids{3, 4});
  CHECK(tree.root({}) == root);
  CHECK(tree.child(*root, Ids{1, 2}) == one);
  CHECK(tree.child(*one, Ids{3, 4}) == two);
  CHECK(tree.child(*root, Ids{3, 4}) != two);
  std::set<PrefixNode*> roots;
  for (const CacheIdentity& identity : std::vector<CacheIdentity>{
           {}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {std::string("\0", 1), ""}}) {
    roots.insert(tree.root(identity));
  }
  CHECK(roots.size() == 7);
}

TEST_CASE("what nothing holds is removed, with the ancestors that stood only for it") {
  PrefixTree tree(1, 1);
  PrefixNode* one = tree.child(*tree.root({}), Ids{1});
  PrefixNode* two = tree.child(*one, Ids{2});
  PrefixNode* three = tree.child(*two, Ids{3});
  ++three->num_holders;
  ++one->num_holders;
  CHECK(tree.num_nodes() == 4);
  tree.prune(one);
  tree.prune(three);
  CHECK(tree.num_nodes() == 4);
  --three->num_holders;
  tree.prune(three);
  CHECK(tree.num_nodes() == 2);
  tree.audit([&](const PrefixNode& node) { CHECK((&node == one || node.parent == nullptr)); });
  --one->num_holders;
  tree.prune(one);
  CHECK(tree.num_nodes() == 0);
}

TEST_CASE("hashes are XXH3's 128 bits, chained over the blocks before") {
  CHECK(xxh3_128({}) == BlockHash{0x6001c324468d497f, 0x99aa06d3014798d8});  // the algorithm's published test vector
  PrefixTree tree(1, 1);
  PrefixNode* root = tree.root({});
  CHECK(tree.child(*root, Ids{5})->hash != tree.child(*tree.child(*root, Ids{4}), Ids{5})->hash);
}

}  // namespace
}  // namespace tokenmill
