// Operators with a low-rank removal: RWKV-7, DPLR, IPLR.
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/golden/tool/matrix_state.hpp"

namespace ogive::golden {

namespace {

void run_rwkv7(trial& t) { run_family_wide<rwkv7>(t, family_order::tokens_first, {"r", "w", "k", "v", "kk", "a"}); }

/// a and b are alpha and beta here.
void run_dplr(trial& t) { run_family_wide<dplr>(t, family_order::heads_first, {"q", "k", "v", "alpha", "beta", "gk"}); }
void run_iplr(trial& t) { run_family_wide<iplr>(t, family_order::heads_first, {"q", "k", "v", "alpha", "beta"}); }

const registration goose("rwkv7", run_rwkv7);
const registration diagonal("dplr", run_dplr);
const registration identity("iplr", run_iplr);

}  // namespace

}  // namespace ogive::golden
