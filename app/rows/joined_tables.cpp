#include "app/rows/joined_tables.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/rows/result_tables.h"
#include "io/hdf5_tables.h"
#include "io/hdf5_writer.h"

namespace tokenmill::rows {
namespace {

constexpr const char* kRow = "/rows/id";         // a column with an entry per row
constexpr const char* kSample = "/samples/row";  // one with an entry per sample

/// A file of a stretch of rows.
struct Part {
  Part(const std::string& directory, const std::string& name) : name(name), tables(directory + "/" + name) {}
  int64_t size(const std::string& column) const {
    const auto found = tables.sizes().find(column);
    return found == tables.sizes().end() ? 0 : found->second;
  }

  std::string name;
  io::Hdf5Tables tables;
};

/// Calls use(value) for the numbers of a part's column.
template <typename Use>
void for_numbers(const Part& part, const std::string& column, Use&& use) {
  constexpr int64_t kAtOnce = 1 << 16;
  std::vector<int64_t> values;
  for (int64_t first = 0, size = part.size(column); first < size; first += kAtOnce) {
    values.resize(static_cast<size_t>(std::min(kAtOnce, size - first)));
    part.tables.read(column, first, values);
    for (const int64_t value : values) use(value);
  }
}

class Join {
 public:
  Join(io::Hdf5Writer& out, const std::vector<Part>& parts) : out_(out), parts_(parts) {}

  void column(const std::string& path) {
    constexpr std::string_view kNul = "_nul", kOffsets = "/offsets";
    if (path == "/rows/first_sample")
      shift(path, kSample);
    else if (path == kSample)
      shift(path, kRow);
    else if (path.ends_with(kOffsets))
      offsets(path, path.substr(0, path.size() - kOffsets.size()) + "/values");
    else if (path.ends_with(kNul))
      places(path, path.substr(0, path.size() - kNul.size()));
    else
      show(path);
  }

 private:
  const Part& holder(const std::string& path) const {
    return *std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.tables.sizes().contains(path); });
  }
  io::Hdf5Numbers<int64_t>& numbers(const std::string& path) {
    return out_.numbers<int64_t>(path, holder(path).tables.about(path));
  }
  /// An entry for each of the table's, whatever a part has.
  int64_t size_in_table(const std::string& path, const Part& part) const {
    if (path.starts_with("/samples/") && path.find('/', 9) == path.npos) return part.size(kSample);
    const bool of_rows = (path.starts_with("/rows/") && path.find('/', 6) == path.npos) || path == "/hidden_states";
    return of_rows ? part.size(kRow) : part.size(path);
  }

  void show(const std::string& path) {
    std::vector<io::Hdf5Stretch> stretches;
    int64_t size = 0;
    for (const Part& part : parts_) {
      if (part.size(path) > 0) stretches.push_back({part.name, size, part.size(path)});
      size += size_in_table(path, part);
    }
    if (stretches.empty()) stretches.push_back({holder(path).name, 0, 0});
    out_.virtual_column(path, size, stretches);
  }
  /// Numbers of entries of another column.
  void shift(const std::string& path, const std::string& counted) {
    auto& column = numbers(path);
    int64_t base = 0;
    for (const Part& part : parts_) {
      for_numbers(part, path, [&](int64_t value) { column.append(base + value); });
      base += part.size(counted);
    }
  }
  /// Where each entry's values begin, one more than entries; a part without the group has no values.
  void offsets(const std::string& path, const std::string& values) {
    auto& column = numbers(path);
    column.append(0);
    int64_t base = 0;
    for (const Part& part : parts_) {
      bool is_first = true;
      for_numbers(part, path, [&](int64_t value) {
        if (!is_first) column.append(base + value);
        is_first = false;
      });
      const int64_t entries = part.size(path.starts_with("/rows/") ? kRow : kSample);
      for (int64_t i = 0; is_first && i < entries; ++i) column.append(base);
      base += part.size(values);
    }
  }
  /// Pairs of an entry of `text` and a character.
  void places(const std::string& path, const std::string& text) {
    auto& column = numbers(path);
    int64_t base = 0;
    for (const Part& part : parts_) {
      bool is_entry = true;
      for_numbers(part, path, [&](int64_t value) {
        column.append(is_entry ? base + value : value);
        is_entry = !is_entry;
      });
      base += size_in_table(text, part);
    }
  }

  io::Hdf5Writer& out_;
  const std::vector<Part>& parts_;
};

}  // namespace

void join_tables(const std::string& path, const std::vector<std::string>& names,
                 const std::vector<std::pair<std::string, std::string>>& attributes) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  std::vector<Part> parts;
  std::set<std::string> columns;
  for (const std::string& name : names) {
    parts.emplace_back(directory, name);
    for (const auto& [column, size] : parts.back().tables.sizes()) columns.insert(column);
  }
  io::Hdf5Writer out(path, io::Hdf5Writer::Format::kWithVirtualColumns);
  out.attribute("/", "format", kTablesFormat);
  out.attribute("/", kPartial, "false");
  for (const auto& [name, value] : attributes) out.attribute("/", name, value);
  Join join(out, parts);
  for (const std::string& column : columns) join.column(column);
  out.commit();
}

}  // namespace tokenmill::rows
