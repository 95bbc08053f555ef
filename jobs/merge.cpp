#include "jobs/merge.h"

#include <vector>

#include "jobs/journal/advice.h"
#include "jobs/row_merge.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {

MergeTotals append_parts(const std::vector<PartPaths>& parts, RowRange rows, const MergeOutputs& outputs,
                         const MergeOptions& options) {
  const LedgerBlocks blocks(parts);
  check_rows(blocks, rows);
  RowMerge merge(parts, blocks, outputs, options);
  merge.copy(rows.begin, rows.end);
  return merge.totals();
}

MergeTotals merge_parts(const std::vector<PartPaths>& parts, RowRange rows, const MergeOutputs& outputs,
                        const MergeOptions& options) {
  const MergeTotals totals = append_parts(parts, rows, outputs, options);
  with_advice([&] {
    for (const auto& output : outputs) output->commit();
  });
  return totals;
}

MergeTotals merge_parts(const std::vector<PartPaths>& parts, RowRange rows, const std::string& output_path,
                        const MergeOptions& options) {
  MergeOutputs outputs;
  with_advice([&] { outputs.push_back(std::make_unique<io::LineWriter>(output_path)); });
  return merge_parts(parts, rows, outputs, options);
}

}  // namespace tokenmill::jobs
