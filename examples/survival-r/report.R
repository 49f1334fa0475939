# report.md: the numbers of $medians, $logrank and of the models below $cox as tables.
# SPDX-License-Identifier: Apache-2.0
table_of <- function(data) {
  row <- function(cells) paste0("| ", paste(cells, collapse = " | "), " |")
  texts <- lapply(data, function(column) if (is.numeric(column)) format(column, digits = 4, trim = TRUE) else column)
  c(row(names(data)), row(rep("---", ncol(data))), apply(as.data.frame(texts), 1, row), "")
}

files <- sort(list.files(Sys.getenv("cox"), pattern = "^cox-.*\\.csv$", recursive = TRUE, full.names = TRUE))
stopifnot(length(files) > 0)
models <- lapply(files, read.csv)
models <- models[order(vapply(models, function(m) m$model[1], ""))]
lines <- c("# Survival", "", "## Kaplan-Meier: median days, with a 95 % interval", "",
           table_of(read.csv(Sys.getenv("medians"))),
           "## Log-rank test", "", table_of(read.csv(Sys.getenv("logrank"))))
for (model in models) {
  hazard <- data.frame(term = model$term, hazard.ratio = exp(model$coef), lower = exp(model$coef - 1.96 * model$se),
                       upper = exp(model$coef + 1.96 * model$se))
  lines <- c(lines, sprintf("## Cox model %s: %d cases, %d deaths", model$model[1], model$n[1], model$events[1]), "",
             table_of(hazard))
}
writeLines(lines, "report.md")
