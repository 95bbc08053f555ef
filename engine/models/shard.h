#pragma once
#include <cstdint>
#include <vector>

#include "engine/models/config.h"
#include "engine/models/range.h"

namespace tokenmill {

/// How a model is spread over the ranks of one replica.
struct ModelGrid {
  int tp_size = 1, pp_size = 1;
  /// --tp-invariant N: the inputs of row-parallel linears are cut into N parts whatever tp_size is (which divides N), so
  /// that every tp_size gives the same bits. 0: into tp_size parts.
  int invariant_parts = 0;
  /// Parts of all ranks together whose products are added.
  int num_parts() const { return invariant_parts > 0 ? invariant_parts : tp_size; }
  bool operator==(const ModelGrid&) const = default;
};

/// The part of a model that one rank holds: the layers of its pipeline stage, and its share of each.
struct ModelShard {
  ModelGrid grid;
  int tp_rank = 0, pp_rank = 0;
  Range layers;  ///< of the stage
  bool is_first_stage() const { return pp_rank == 0; }
  bool is_last_stage() const { return pp_rank + 1 == grid.pp_size; }

  Range heads(const ModelConfig& config) const;
  /// Each rank has whole heads; with more ranks than KV heads, tp_size / num_kv_heads neighbours hold the same one.
  Range kv_heads(const ModelConfig& config) const;
  /// Columns of gate and up, rows of down's input; the ranks' ranges follow one another and need not be equally long.
  Range intermediate(const ModelConfig& config) const;
  /// Rows of the token embedding.
  Range embedding_rows(const ModelConfig& config) const;
  /// Ids whose logits this rank computes: whole tiles of kVocabTile ids; may be empty.
  Range vocabulary(const ModelConfig& config) const;
  /// The parts of this rank's row-parallel inputs: 1, or invariant_parts / tp_size.
  int num_parts() const { return grid.num_parts() / grid.tp_size; }
  /// Of part i of num_parts(): heads, and columns of the intermediate.
  Range part_heads(const ModelConfig& config, int i) const;
  Range part_intermediate(const ModelConfig& config, int i) const;
};

/// The whole model on one rank.
ModelShard whole_model(const ModelConfig& config);

/// Throws Error(kConfig) naming the option, both numbers and the values that would work: tp_size must divide the query
/// heads, and divide the KV heads or be a multiple of them; no more stages than layers; invariant_parts a multiple of
/// tp_size that divides the query heads. `where` names the model.
void check_grid(const ModelGrid& grid, const ModelConfig& config, const std::string& where);

/// What the parts of a model cost a step, in any one unit.
struct LayerCosts {
  double layer = 1;      ///< one decoder layer
  double embedding = 0;  ///< on the first stage
  double head = 0;       ///< on the last stage
};

/// The layers of each stage, in order, at least one each: those for which the slowest stage costs least; among equals
/// the earlier stages have more.
std::vector<Range> balance_stages(int64_t num_layers, int pp_size, const LayerCosts& costs);

}  // namespace tokenmill
