import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { parse } from 'yaml'

const FOLDER = join(import.meta.dirname, '../../../deploy')

/** A query of a panel. */
export interface PanelQuery {
  readonly title: string
  readonly expression: string
}

/** A rule of Prometheus that may fire. */
export interface AlertRule {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly summary: string; readonly description: string }
}

interface Panel {
  readonly title: string
  readonly type: string
  readonly targets?: readonly { readonly expr: string }[]
}

/** Every query of the dashboard, as Grafana sends it with all models chosen. */
export function readPanelQueries(): PanelQuery[] {
  const path = join(FOLDER, 'monitoring/grafana/dashboards/millrace.json')
  const { panels } = JSON.parse(readFileSync(path, 'utf8')) as { panels: readonly Panel[] }
  return panels.flatMap(({ title, targets }) =>
    (targets ?? []).map(({ expr }) => ({
      title,
      expression: expr.replaceAll('$__rate_interval', '5m').replaceAll('$model', '.*'),
    })),
  )
}

/** Every alert that Prometheus is given. */
export function readAlerts(): AlertRule[] {
  return rulesOf(parse(readFileSync(join(FOLDER, 'monitoring/alerts.yml'), 'utf8')))
}

/** The alerts that have a runbook. */
export function readRunbooks(): string[] {
  const text = readFileSync(join(FOLDER, '../docs/runbooks.md'), 'utf8')
  return [...text.matchAll(/^## (\w+)$/gm)].map(([, name = '']) => name)
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly AlertRule[] }[]
}

function rulesOf({ groups }: Rules): AlertRule[] {
  return groups.flatMap(({ rules }) => rules)
}
