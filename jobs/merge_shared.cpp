#include "jobs/merge_shared.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/file.h"
#include "io/range_writer.h"
#include "jobs/journal/advice.h"
#include "jobs/merge_task.h"
#include "jobs/row_merge.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

/// Lines to a stretch of a file; the first begins at `offset`.
class StretchWriter final : public io::RecordWriter {
 public:
  StretchWriter(io::RangeWriter& file, int64_t offset) : file_(file), offset_(offset) {}
  void write(int64_t row, std::string_view line, std::string_view attachment) override {
    TM_ASSERT(attachment.empty(), "row {} is more than a line", row);
    file_.write(offset_, line);
    offset_ += static_cast<int64_t>(line.size());
  }
  void commit() override {}
  int64_t offset() const { return offset_; }

 private:
  io::RangeWriter& file_;
  int64_t offset_;
};

/// Rows [begin, end) and where they lie in the file; their stretch of it begins and ends at the next aligned bytes.
struct Share {
  int64_t begin = 0, end = 0;
  int64_t offset = 0, bytes = 0, file_bytes = 0;
  int64_t aligned(int64_t at, int64_t alignment) const {
    return std::min(file_bytes, (at + alignment - 1) / alignment * alignment);
  }
};

MergeTotals write_share(const MergeTask& task, const Share& share, const SharedMergeOptions& options) {
  const int64_t stretch_begin = share.aligned(share.offset, options.alignment);
  const int64_t stretch_end = share.aligned(share.offset + share.bytes, options.alignment);
  const auto file = with_advice(
      [&] { return std::make_unique<io::RangeWriter>(task.path, stretch_begin, stretch_end); });
  MergeOutputs outputs;
  outputs.push_back(std::make_unique<StretchWriter>(*file, share.offset));
  const auto& writer = static_cast<const StretchWriter&>(*outputs[0]);
  RowMerge merge(task.parts, task.blocks, outputs, options.merge);
  merge.copy(share.begin, share.end);
  const MergeTotals mine = merge.totals();
  TM_ASSERT(mine.bytes == share.bytes, "rows {} to {} have {} bytes, their ledgers say {}", share.begin, share.end - 1,
            mine.bytes, share.bytes);
  constexpr int64_t kRowsAtOnce = 256;  // of the next share, up to the end of this one's stretch
  for (int64_t row = share.end; writer.offset() < stretch_end; row += kRowsAtOnce)
    merge.copy(row, std::min(task.rows.end, row + kRowsAtOnce));
  with_advice([&] { file->close(); });
  return mine;
}

/// Rank 0's temporary; gone unless it has got its name.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  void create(int64_t bytes) const {
    io::File file = io::File::create(path_);
    file.truncate(bytes);
    file.close();
  }
  void rename_to(const std::string& output_path) {
    io::File file = io::File::open_write(path_);
    file.sync();
    file.close();
    io::rename_into_place(path_, output_path);
    path_.clear();
  }

 private:
  std::string path_;
};

}  // namespace

MergeTotals merge_shared(const std::vector<PartPaths>& parts, RowRange rows, const std::string& output_path,
                         const parallel::Comm& comm, const SharedMergeOptions& options) {
  const std::string temporary_path = fmt::format("{}.tmp.{}", output_path, ::getpid());
  Temporary temporary(comm.rank() == 0 ? temporary_path : "");
  parallel::run_on_root(comm, [&] { io::check_replaceable(output_path); });
  const MergeTask task = share_task({.parts = parts, .rows = rows, .path = temporary_path}, comm);

  const bool root_writes = !options.other_work;
  const int writers = comm.size() - (root_writes ? 0 : 1), index = comm.rank() - (root_writes ? 0 : 1);
  TM_ASSERT(writers > 0);
  Share mine;
  parallel::agree_on(comm, [&] {
    if (index < 0) return;
    const RowRange share = share_of_rows(task.rows, writers, index);
    mine.begin = share.begin;
    mine.end = share.end;
    const MergeOutputs none;
    mine.bytes = RowMerge(task.parts, task.blocks, none, options.merge).bytes_of(mine.begin, mine.end);
  });
  const std::vector<int64_t> sizes = parallel::gather_values(comm, mine.bytes);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    mine.file_bytes += sizes[rank];
    if (rank < static_cast<size_t>(comm.rank())) mine.offset += sizes[rank];
  }
  parallel::run_on_root(comm, [&] { with_advice([&] { temporary.create(mine.file_bytes); }); });
  MergeTotals totals;
  parallel::agree_on(comm, [&] {
    if (index >= 0)
      totals = write_share(task, mine, options);
    else
      options.other_work();
  });
  MergeTotals sum;
  for (const MergeTotals& of_rank : parallel::gather_values(comm, totals)) sum.add(of_rank);
  parallel::run_on_root(comm, [&] { with_advice([&] { temporary.rename_to(output_path); }); });
  return sum;
}

}  // namespace tokenmill::jobs
