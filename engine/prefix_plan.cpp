#include "engine/prefix_plan.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace tokenmill {

PrefixPlan::PrefixPlan(int64_t max_overtakes)
    : max_overtakes_(max_overtakes), root_(std::make_unique<Node>()), current_(root_.get()) {}

PrefixPlan::~PrefixPlan() = default;

int64_t PrefixPlan::add(std::span<const uint64_t> pages, int64_t work) {
  Node& node = node_behind(pages);
  const int64_t ticket = next_ticket_++;
  node.choices.insert({work, ticket});
  items_.emplace_hint(items_.end(), ticket, Item{&node, work});
  refresh(&node);
  return ticket;
}

/// The node whose path from the root is exactly these pages, made when it is missing.
PrefixPlan::Node& PrefixPlan::node_behind(std::span<const uint64_t> pages) {
  Node* node = root_.get();
  while (!pages.empty()) {
    std::unique_ptr<Node>& child = node->children[pages[0]];
    if (!child) {
      child = std::make_unique<Node>();
      child->parent = node;
      child->pages.assign(pages.begin(), pages.end());
      return *child;
    }
    const auto [end, unused] = std::mismatch(child->pages.begin(), child->pages.end(), pages.begin(), pages.end());
    const auto shared = static_cast<size_t>(end - child->pages.begin());
    if (shared < child->pages.size()) split(*child, shared);
    node = child.get();
    pages = pages.subspan(shared);
  }
  return *node;
}

/// Puts a node of the first num_pages pages between the node and its parent. The node keeps its address.
void PrefixPlan::split(Node& node, size_t num_pages) {
  Node& parent = *node.parent;
  std::unique_ptr<Node>& place = parent.children.at(node.pages[0]);
  auto middle = std::make_unique<Node>();
  middle->parent = &parent;
  middle->pages.assign(node.pages.begin(), node.pages.begin() + static_cast<std::ptrdiff_t>(num_pages));
  middle->in_parent = std::exchange(node.in_parent, {});
  if (middle->in_parent.ticket >= 0) {
    parent.choices.erase(middle->in_parent);
    middle->in_parent.child = middle.get();
    parent.choices.insert(middle->in_parent);
    node.in_parent = {middle->in_parent.work, middle->in_parent.ticket, &node};
    middle->choices.insert(node.in_parent);
  }
  node.pages.erase(node.pages.begin(), node.pages.begin() + static_cast<std::ptrdiff_t>(num_pages));
  node.parent = middle.get();
  middle->children.emplace(node.pages[0], std::move(place));
  place = std::move(middle);
}

/// Tells the node's ancestors what its best item is now.
void PrefixPlan::refresh(Node* node) {
  for (; node->parent != nullptr; node = node->parent) {
    Choice best;
    if (!node->choices.empty()) best = *node->choices.begin();
    if (best.ticket == node->in_parent.ticket) return;
    std::set<Choice>& choices = node->parent->choices;
    if (node->in_parent.ticket >= 0) choices.erase(node->in_parent);
    node->in_parent = {best.work, best.ticket, node};
    if (best.ticket >= 0) choices.insert(node->in_parent);
  }
}

int64_t PrefixPlan::front() {
  TM_ASSERT(!empty());
  if (front_ >= 0) return front_;
  const auto& [oldest, item] = *items_.begin();
  Node* node = current_;
  if (num_taken_ - oldest >= max_overtakes_) {
    front_ = oldest;
    node = item.node;
  } else {
    while (node->choices.empty()) node = node->parent;
    while (node->choices.begin()->child != nullptr) node = node->choices.begin()->child;
    front_ = node->choices.begin()->ticket;
  }
  leave(std::exchange(current_, node));
  return front_;
}

void PrefixPlan::pop() {
  const auto found = items_.find(front());
  Node* node = found->second.node;
  node->choices.erase({found->second.work, front_});
  items_.erase(found);
  refresh(node);
  ++num_taken_;
  front_ = -1;
}

/// Removes nodes that the walk has left behind with nothing in them: the node, then its ancestors, up to one that has
/// items or lies on the present path.
void PrefixPlan::leave(Node* node) {
  while (node->parent != nullptr && node->choices.empty() && node->children.empty() && node != current_) {
    Node* parent = node->parent;
    const uint64_t page = node->pages[0];  // the key dies with the node
    parent->children.erase(page);
    node = parent;
  }
}

int64_t PrefixPlan::num_nodes() const {
  int64_t count = 0;
  std::vector<const Node*> open{root_.get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    ++count;
    for (const auto& [page, child] : node->children) open.push_back(child.get());
  }
  return count;
}

}  // namespace tokenmill
