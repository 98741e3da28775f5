/* Loads a compiled model and runs it once on inputs of zeros: run_model MODEL.so */
#include <cuvil/cuvil.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(void) {
  fprintf(stderr, "%s\n", cuvil_error_message());
  return 1;
}

static size_t elements(const int64_t *shape, int32_t rank) {
  size_t n = 1;
  for (int32_t i = 0; i < rank; ++i) n *= (size_t)shape[i];
  return n;
}

int main(int argc, char **argv) {
  enum { MOST = 8, RANK = 8, WIDEST = 8 };
  cuvil_model *model = NULL;
  cuvil_tensor in[MOST], out[MOST];
  int64_t in_shape[MOST][RANK], out_shape[MOST][RANK], *out_shapes[MOST];
  if (argc != 2 || cuvil_model_load(argv[1], NULL, &model)) return fail();
  for (int32_t i = 0; i < cuvil_model_input_count(model); ++i) {
    const cuvil_tensor_info *info = cuvil_model_input(model, i);
    for (int32_t a = 0; a < info->rank; ++a) in_shape[i][a] = info->shape[a] < 0 ? 1 : info->shape[a];
    in[i] = (cuvil_tensor){calloc(elements(in_shape[i], info->rank), WIDEST), in_shape[i], info->rank, info->dtype};
  }
  for (int32_t i = 0; i < MOST; ++i) out_shapes[i] = out_shape[i];
  if (cuvil_model_output_shapes(model, in, out_shapes)) return fail();
  for (int32_t i = 0; i < cuvil_model_output_count(model); ++i) {
    const cuvil_tensor_info *info = cuvil_model_output(model, i);
    out[i] = (cuvil_tensor){malloc(elements(out_shape[i], info->rank) * WIDEST), out_shape[i], info->rank, info->dtype};
  }
  if (cuvil_model_run(model, in, out)) return fail();
  const cuvil_tensor_info *first = cuvil_model_output(model, 0);
  printf("%s:", first->name);
  if (first->dtype == CUVIL_F32)
    for (size_t i = 0; i < elements(out_shape[0], first->rank) && i < 5; ++i) printf(" %.9g", ((float *)out[0].data)[i]);
  printf("\n");
  cuvil_model_free(model);
  return 0;
}
