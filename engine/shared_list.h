#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tokenmill {

/// A list that never changes; copies share its memory. For what all rows of a job have in common and may be as long as
/// the vocabulary.
template <typename T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::vector<T> items)  // NOLINT(google-explicit-constructor): a list is a list
      : items_(items.empty() ? nullptr : std::make_shared<const std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  const std::vector<T>& get() const {
    static const std::vector<T> none;
    return items_ != nullptr ? *items_ : none;
  }
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  size_t size() const { return get().size(); }
  bool empty() const { return items_ == nullptr; }
  const T& operator[](size_t i) const { return get()[i]; }
  /// Others hold it too: this copy takes no memory of its own.
  bool is_shared() const { return items_.use_count() > 1; }

  bool operator==(const SharedList& other) const { return items_ == other.items_ || get() == other.get(); }

 private:
  std::shared_ptr<const std::vector<T>> items_;
};

}  // namespace tokenmill
