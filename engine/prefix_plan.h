#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace tokenmill {

/// The order in which waiting work is taken up when it shares beginnings: a tree of pages (blocks of tokens) is walked
/// depth first, so that each shared beginning is in use for one stretch of time, computed once and not needed again.
/// The walk stays in the subtree it is in, also when new items arrive there; where it has a choice it takes the longest
/// item, or the subtree with the longest one, so that what is left at the end is short; among equals what came first.
/// An item that max_overtakes later ones have overtaken goes first.
///
/// Pages are known by 64-bit hashes of all tokens up to their end. Equal hashes of unequal tokens change the order, no
/// result. An operation costs the depth of the tree's branchings times the logarithm of their width.
class PrefixPlan {
 public:
  explicit PrefixPlan(int64_t max_overtakes = int64_t{1} << 14);
  ~PrefixPlan();
  PrefixPlan(const PrefixPlan&) = delete;
  PrefixPlan& operator=(const PrefixPlan&) = delete;

  /// A new item behind these pages. work: tokens to compute and to generate, as far as anyone can tell. Returns its
  /// ticket; tickets ascend.
  int64_t add(std::span<const uint64_t> pages, int64_t work);
  /// The ticket of the item to take next; it stays the same until that is taken. Not on an empty plan.
  int64_t front();
  /// Removes the item that front() shows.
  void pop();

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  bool empty() const { return items_.empty(); }
  int64_t num_nodes() const;  ///< for tests

 private:
  struct Node;
  /// What can be taken next below a node: an item that ends there, or a child by its best item. Best first.
  struct Choice {
    int64_t work = 0;
    int64_t ticket = -1;
    Node* child = nullptr;
    bool operator<(const Choice& other) const { return work != other.work ? work > other.work : ticket < other.ticket; }
  };
  struct Node {
    Node* parent = nullptr;
    std::vector<uint64_t> pages;                                   // from the parent to here
    std::unordered_map<uint64_t, std::unique_ptr<Node>> children;  // by their first page
    std::set<Choice> choices;
    Choice in_parent;  // its entry in the parent's choices; ticket -1: none
  };
  struct Item {
    Node* node;
    int64_t work;
  };

  Node& node_behind(std::span<const uint64_t> pages);
  void split(Node& node, size_t num_pages);
  static void refresh(Node* node);
  void leave(Node* node);

  int64_t max_overtakes_;
  std::unique_ptr<Node> root_;
  Node* current_;                  // where the walk is
  std::map<int64_t, Item> items_;  // by ticket
  int64_t next_ticket_ = 0;
  int64_t num_taken_ = 0;
  int64_t front_ = -1;
};

}  // namespace tokenmill
